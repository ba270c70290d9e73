//! Opening endpoints.

use super::Ofi;
use crate::connections::{self, Connections, Spare};
use crate::ofi::card::{ADDRESS_BYTES_MAX, Card};
use crate::ofi::choice::is_named;
use crate::ofi::frame::LEAD_BYTES;
use crate::ofi::jam::Jam;
use crate::ofi::mode::{self, Opening, Tags};
use crate::ofi::own::{Own, random};
use crate::ofi::pace::Pace;
use crate::ofi::port::Port;
use crate::ofi::{Info, Library, OfiConfig, OfiError, control, interfaces, message_hints};
use crate::processes;
use crate::shm::identity;
use crate::watching::{Token, Watched};
use crate::{Capabilities, Reach, TagLimits};
use rustix::io::Errno;
use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::path::Path;
use tickwire_components::limits::{FABRIC_NEAR_READS, LISTEN_BACKLOG, Lengths};

/// See [`lengths`].
const RXM_PART_BYTES: usize = 15 << 10;
const NEAR_PART_BYTES: usize = 4096 - LEAD_BYTES;
/// Bytes of the provider's memory that an unexpected message takes: `ofi_rxm` keeps the buffer that it was received into, 16 KiB and its
/// own headers, however short the message. `sockets` has room for some 3000 such messages in all.
const KEPT_BYTES: usize = 17 << 10;

impl Ofi {
    /// Opens an endpoint for each candidate that the configuration chooses, in libfabric's order. Its name is `ofi:` followed by the
    /// provider's full name; further devices of the same provider have `@2` and so on at the end.
    ///
    /// # Errors
    /// What is missing or wrong, and what to do.
    pub fn open(config: &OfiConfig) -> Result<Vec<Ofi>, OfiError> {
        config.choice.check()?;
        let library = Library::get()?;
        let candidates = config.choice.candidates(&library, &message_hints())?;
        let mut opened: Vec<Ofi> = Vec::new();
        for info in config.choice.take(candidates)? {
            let name = format!("ofi:{}", info.provider());
            let same = |other: &&Ofi| other.name.split('@').next() == Some(&name);
            let before = opened.iter().filter(same).count();
            let name = if before == 0 { name } else { format!("{name}@{}", before + 1) };
            let priority = config.priority.saturating_sub(opened.len() as u8);
            opened.push(Ofi::open_one(config, info, name, priority)?);
        }
        Ok(opened)
    }

    pub(in crate::ofi) fn open_one(
        config: &OfiConfig,
        info: Info,
        name: String,
        priority: u8,
    ) -> Result<Ofi, OfiError> {
        let provider = info.provider().to_owned();
        let control = |what: &str, error: Errno| OfiError::Control {
            provider: provider.clone(),
            reason: format!("{what}: {error}"),
        };
        let near = is_named(&provider, "shm");
        let config = &OfiConfig { lengths: lengths(&provider, config.lengths), ..config.clone() };
        let frame_max = config.lengths.frame_max();
        let place = match info.host_address() {
            Some(place) => place,
            None if near => (Ipv4Addr::LOCALHOST, 0).into(),
            None => interfaces::widest(interfaces::own())
                .ok_or_else(|| control("no network interface is up", Errno::ADDRNOTAVAIL))?,
        };
        let identity =
            |error: crate::ShmError| OfiError::Control { provider: provider.clone(), reason: error.to_string() };
        let boot_id = identity::boot_id().map_err(identity)?;
        let host = identity::host_card(boot_id, Some(Path::new("/dev/shm"))).map_err(identity)?;
        let Opening { info, tags, words } = mode::choose(info, config.choice.tag_mode()?, config.choice.without_data)?;
        let tags = tags.map(|tags| (tags, matched_max(config)));
        let port = Port::open(info, config, tags)?;
        let address = port.name()?;
        if address.len() > ADDRESS_BYTES_MAX {
            return Err(control("its address is too long for a card", Errno::NAMETOOLONG));
        }
        let (listener, at) =
            control::listen(place, LISTEN_BACKLOG).map_err(|e| control(&format!("cannot listen at {place}"), e))?;
        let secret = random().map_err(|e| control("no random numbers", e))?;
        let watched = Watched::new().map_err(|e| control("no descriptor", e))?;
        watched.add(&listener, Token::Listener).map_err(|e| control("no descriptor", e))?;
        let process = processes::own();
        let (address, matching) = (address, mode::signature(tags));
        let card = Card { control: at, secret, host, process, address: address.clone(), matching };
        let own = Own {
            card: card.encode(),
            host,
            secret,
            address,
            greeting: connections::greeting(&config.job, config.me, config.procs, frame_max, boot_id),
            watched,
            watchers: Vec::new(),
            config: config.clone(),
        };
        Ok(Ofi {
            name,
            matches: tags.is_some(),
            words,
            signature: mode::signature(tags),
            capabilities: capabilities(&port, config, tags, near, priority),
            port: RefCell::new(port),
            pace: Pace::default(),
            looks: if near { FABRIC_NEAR_READS } else { 1 },
            own,
            spare: Spare::of(&listener).map_err(|e| control("no descriptor", e))?,
            connections: Connections::new(listener),
            buffers_jam: Jam::default(),
            slots_jam: Jam::default(),
            asleep: false,
            rings: false,
        })
    }
}

/// The capabilities of an endpoint.
fn capabilities(
    port: &Port,
    config: &OfiConfig,
    tags: Option<(Tags, usize)>,
    near: bool,
    priority: u8,
) -> Capabilities {
    let frame_max = config.lengths.frame_max();
    Capabilities {
        whole_frames: true,
        inject_max: frame_max,
        lengths: Some(config.lengths),
        holds_back: true,
        can_sleep: port.queue().wait_fd().is_some(),
        // The endpoint decides by itself how often it polls the fabric.
        cheap_poll: true,
        tags: tags.map_or(TagLimits::NONE, |(tags, _)| tags.format.limits()),
        matched_max: matched_max(config),
        kept_bytes: if tags.is_some() { KEPT_BYTES } else { 0 },
        directed_receive: port.is_directed(),
        completion_data: tags.map_or(0, |(tags, _)| tags.data_bytes),
        ..Capabilities::least(if near { Reach::Host } else { Reach::Network }, priority, frame_max)
    }
}

/// Longest message that the provider matches, bytes.
fn matched_max(config: &OfiConfig) -> usize {
    config.matched_max.min(config.lengths.frame_max())
}

/// How messages are cut into frames with a provider. The layer `ofi_rxm` sends up to 16 KiB, with its own headers, at once; it cuts a
/// longer send, or lets the receiver fetch it. So the parts of an eager message stay below that length. So do those over `shm`: it copies
/// up to 4 KiB through shared memory, and has the receiver ask the kernel for longer sends, which takes six times as long.
fn lengths(provider: &str, lengths: Lengths) -> Lengths {
    let part_bytes = match provider {
        near if is_named(near, "shm") => NEAR_PART_BYTES,
        layered if is_named(layered, "ofi_rxm") => RXM_PART_BYTES,
        _ => usize::MAX,
    };
    Lengths { part_bytes: lengths.part_bytes.min(part_bytes), ..lengths }
}
