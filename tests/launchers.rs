//! Real launchers of users: mpiexec of MPICH (hydra), mpirun of Open MPI, and srun. Also a PMI-1 server that behaves
//! like Flux. `tests/run` installs the first two below `target/tools`. If a launcher is missing, its tests are skipped
//! and say so.

#![allow(clippy::unwrap_used, reason = "what cannot be prepared fails the test")]

/// So that the names of these tests have a word in common by which `tests/run` selects them.
mod launchers {
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
}
