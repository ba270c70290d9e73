//! Whether long messages between processes of a host are staged. The builder decides; if it does not, the environment does.

use tickwire_components::BuildError;
use tickwire_transports::shm::Staging;

/// The variable that says when long messages are staged, for engines whose builder does not: `never`, `cheaper` or `always`.
pub const ENV_STAGING: &str = "TICKWIRE_STAGING";

pub(crate) fn decide(asked: Option<Staging>) -> Result<Staging, BuildError> {
    match (asked, std::env::var(ENV_STAGING).as_deref()) {
        (Some(asked), _) => Ok(asked),
        (None, Err(_)) => Ok(Staging::default()),
        (None, Ok(value)) => value.parse().map_err(|_| BuildError::Environment {
            variable: ENV_STAGING,
            value: value.to_owned(),
            expected: "give never, cheaper or always".to_owned(),
        }),
    }
}
