//! The launchers that users bring, as they are: mpiexec of MPICH (hydra), mpirun of Open MPI, srun; and a server of PMI-1 as Flux has one.
//! `tests/run` installs the first two below `target/tools`. What is missing is skipped, and says so.

#![allow(clippy::unwrap_used, reason = "what cannot be prepared fails the test")]

mod flux;
mod hosts;
mod hydra;
mod kit;
mod network;
mod openmpi;
mod own;
mod seeing;
mod slurm;
mod slurm_hosts;
