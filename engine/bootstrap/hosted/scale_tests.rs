//! What an exchange of cards costs the launcher, in jobs that are too large for any test to start. The heads of all hosts are simulated,
//! with the same code and a launcher that counts.

use super::*;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Longest value that a PMI-1 server takes: 1024 bytes, less the words around the value, as base64.
const VALUE_MAX: usize = 675;
const RANKS_A_HOST: u32 = 64;

#[derive(Default)]
struct Count {
    values: HashMap<(u32, String), Vec<u8>>,
    puts: usize,
    put_bytes: usize,
    gets: usize,
    got_bytes: usize,
}

pub(super) struct Counting {
    rank: u32,
    size: u32,
    count: Rc<RefCell<Count>>,
}

/// A launcher's connection of a head, for tests that exchange nothing through it.
pub(super) fn head(rank: u32, size: u32) -> Counting {
    Counting { rank, size, count: Rc::default() }
}

#[expect(unsafe_code, reason = "the trait asks for Send, for exchanges of real launchers")]
// SAFETY: this test has one thread.
unsafe impl Send for Counting {}

impl Kvs for Counting {
    fn name(&self) -> String {
        "a launcher that counts".into()
    }
    fn rank(&self) -> u32 {
        self.rank
    }
    fn size(&self) -> u32 {
        self.size
    }
    fn id(&self) -> &str {
        "count"
    }
    fn hosts(&mut self) -> Result<Option<HostMap>, BootstrapError> {
        Ok(None)
    }
    fn value_max(&self) -> usize {
        VALUE_MAX
    }
    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError> {
        let mut count = self.count.borrow_mut();
        count.puts += 1;
        count.put_bytes += value.len();
        assert!(count.values.insert((self.rank, key.to_owned()), value.to_vec()).is_none());
        Ok(())
    }
    fn fence(&mut self, _: bool) -> Result<(), BootstrapError> {
        Ok(())
    }
    fn get(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>, BootstrapError> {
        let mut count = self.count.borrow_mut();
        let value = count.values.get(&(rank, key.to_owned())).cloned();
        count.gets += 1;
        count.got_bytes += value.as_ref().map_or(0, Vec::len);
        Ok(value)
    }
    fn abort(&self, _: i32) {}
    fn finalize(&mut self) {}
}

/// A card for shared memory and TCP. It is as long as a real one, and differs from rank to rank in the same places.
fn card(rank: u32) -> Vec<u8> {
    let host = rank / RANKS_A_HOST;
    let mix = |salt: u64| (u64::from(rank) + salt).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
    let (pid, started) = ((20_000 + rank % RANKS_A_HOST).to_be_bytes(), [0, 0, 0, 0, 1, 2, 3, rank as u8 & 3]);
    let address = [10, (host >> 16) as u8, (host >> 8) as u8, host as u8];
    let port = &mix(1)[..2];
    let process = [&pid[..], &started].concat();
    let shm = [&b"shm"[..], &u64::from(host).to_be_bytes(), &process].concat();
    let control = [&[3, 28], port, &[0; 10], &[0xff; 2], &address].concat();
    let ofi = [
        b"ofi:tcp;ofi_rxm".to_vec(),
        control,
        mix(2).to_vec(),
        process,
        [&[2, 0][..], port, &address, &[0; 12]].concat(),
    ];
    [shm, ofi.concat(), vec![0; 4]].concat()
}

/// One exchange of all cards. Returns (hosts, puts, bytes put, gets of one head, bytes that it got).
fn exchange(size: u32) -> (usize, usize, usize, usize, usize) {
    let hosts = HostMap::of_names((0..size).map(|rank| rank / RANKS_A_HOST));
    let count = Rc::new(RefCell::new(Count::default()));
    let head = |rank| Counting { rank, size, count: count.clone() };
    let ranks_of = |first: u32| {
        let ranks = first..size.min(first + RANKS_A_HOST);
        ranks.map(|rank| (rank, vec![("card".to_owned(), card(rank))])).collect::<Vec<_>>()
    };
    for &first in hosts.firsts() {
        put_long(&mut head(first), "1.t", &table::encode(&ranks_of(first))).unwrap();
    }
    // Every head does the same, so only the first, a middle and the last one are simulated.
    let firsts = hosts.firsts();
    for first in [firsts[0], firsts[firsts.len() / 2], firsts[firsts.len() - 1]] {
        (count.borrow_mut().gets, count.borrow_mut().got_bytes) = (0, 0);
        let known: Vec<u32> = ranks_of(first).iter().map(|(rank, _)| *rank).collect();
        let mut tables = collect(&mut head(first), &hosts, &known, "1.t").unwrap();
        tables.push(table::encode(&ranks_of(first)));
        let mut cards = vec![None; size as usize];
        for table in &tables {
            table::values(table, size, "card", |rank, value| cards[rank as usize] = Some(value.to_vec())).unwrap();
        }
        assert!((0..size).all(|rank| cards[rank as usize].as_deref() == Some(&card(rank))), "all cards are there");
    }
    let count = count.borrow();
    (firsts.len(), count.puts, count.put_bytes, count.gets, count.got_bytes)
}

#[test]
fn messages_and_bytes_through_the_launcher_grow_with_the_hosts() {
    println!(
        "| ranks | hosts | puts of all | bytes put | gets of a host | bytes got | cards alone |\n|---|---|---|---|---|---|---|"
    );
    let mut per_host = Vec::new();
    for size in [640, 10_000, 100_000] {
        let (hosts, puts, put_bytes, gets, got_bytes) = exchange(size);
        let plain = card(0).len() * size as usize;
        println!("| {size} | {hosts} | {puts} | {put_bytes} | {gets} | {got_bytes} | {plain} |");
        assert!(gets <= puts && got_bytes < put_bytes, "a host gets what the others have put, once");
        assert!(put_bytes * 2 < plain, "{put_bytes} of {plain}");
        per_host.push((puts.div_ceil(hosts), put_bytes / hosts));
    }
    // The cost per host does not depend on the number of hosts.
    assert!(per_host.iter().all(|&(puts, _)| puts == per_host[0].0 && puts <= 5), "{per_host:?}");
    let (least, most) = (per_host.iter().map(|of| of.1).min().unwrap(), per_host.iter().map(|of| of.1).max().unwrap());
    assert!(most - least < most / 10, "{per_host:?}");
}
