//! Endpoints of one process that talk to each other, peers that misbehave, and one process that is killed.

mod connecting;
mod frames;
mod growing;
mod kit;
mod processes;
mod reading;
mod staging;
mod strangers;
mod users;
