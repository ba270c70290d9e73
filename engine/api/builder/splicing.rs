//! Whether long messages between processes of a host are spliced. The builder decides; if it does not, the environment does.

use tickwire_components::BuildError;
use tickwire_transports::shm::Splicing;

/// The variable that says when long messages are spliced, for engines whose builder does not: `never`, `cheaper` or `always`.
pub const ENV_SPLICE: &str = "TICKWIRE_SPLICE";

pub(crate) fn decide(asked: Option<Splicing>) -> Result<Splicing, BuildError> {
    match (asked, std::env::var(ENV_SPLICE).as_deref()) {
        (Some(asked), _) => Ok(asked),
        (None, Err(_)) => Ok(Splicing::default()),
        (None, Ok(value)) => value.parse().map_err(|_| BuildError::Environment {
            variable: ENV_SPLICE,
            value: value.to_owned(),
            expected: "give never, cheaper or always".to_owned(),
        }),
    }
}
