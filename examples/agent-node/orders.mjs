// Two workflows and their tasks.

import { Workflow, flow, task, wait } from "./decider.mjs";

/** An order: charge and reserve in parallel, wait three days for the payment, then ship or refund. */
export class Order extends Workflow {
  async handle() {
    const [hold, parcels] = await this.execute(
      task("charge", { order: this.order }),
      task("reserve", { order: this.order }),
    );
    while ((this.paid ?? 0) < this.amount) {
      const paid = await this.execute(wait({ event: "paid", seconds: 3 * 86_400 }));
      if (paid === null) return await this.execute(task("refund", { hold }));
    }
    await this.dispatch(task("email", { order: this.order, text: "thank you" }));
    return await this.execute(task("ship", { order: this.order, parcels }));
  }

  onEvent(event) {
    this.paid = (this.paid ?? 0) + event.data.amount;
    return this.amount - this.paid; // what is missing, for whoever asks
  }
}

/** The example of the seed: three tasks in parallel, then a fourth. */
export class Parallel extends Workflow {
  async handle() {
    await this.execute(task("task1"), task("task2"), task("task3"));
    await this.execute(task("task4"));
  }

  onStart() {}
}

/** Sub-workflows are works, too. */
export class Basket extends Workflow {
  async handle() {
    const orders = this.orders.map((order) => flow("Order", { order, amount: 0 }));
    return [await this.execute(...orders)].flat();
  }
}

export const workflows = { Order, Parallel, Basket };

export const tasks = {
  charge: ({ order }) => `hold-${order}`,
  reserve: () => 3,
  refund: ({ hold }) => `${hold} refunded`,
  email: ({ order, text }) => console.log(`to the customer of ${order}: ${text}`),
  ship: ({ order, parcels }) => `${order} shipped in ${parcels} parcels`,
  task1: () => 1,
  task2: () => 2,
  task3: () => 3,
  task4: () => 4,
};
