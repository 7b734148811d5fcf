"""A store on Postgres, which many engines may share."""
