"""Skip jobs that are up to date: keys of jobs, stored results, and why a job runs."""
