//! Which ranks run on which host.

use std::collections::HashMap;
use tickwire_components::limits::PROCS_MAX;

/// The host of each rank. Hosts are numbered in the order of their first ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostMap {
    hosts: Vec<u32>,
    /// The first rank of each host.
    firsts: Vec<u32>,
}

impl HostMap {
    /// From names of the ranks' hosts, in rank order. Any names that differ between hosts will do.
    pub(super) fn of_names<N: std::hash::Hash + Eq>(names: impl IntoIterator<Item = N>) -> Self {
        let mut numbers: HashMap<N, u32> = HashMap::new();
        let mut map = Self { hosts: Vec::new(), firsts: Vec::new() };
        for (rank, name) in (0..).zip(names) {
            let next = numbers.len() as u32;
            let host = *numbers.entry(name).or_insert(next);
            if host == next {
                map.firsts.push(rank);
            }
            map.hosts.push(host);
        }
        map
    }

    /// Reads `PMI_process_mapping`, such as `(vector,(0,2,4),(2,1,1))`. A block has a first node, a number of nodes, and the number of
    /// ranks on each node. `7` is one rank on node 7, and `[(0,2,1),3]x3` repeats what is in the brackets three times. Ranks are numbered
    /// along the blocks, and again from the first block, until there are `size`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub(super) fn parse_vector(text: &str, size: u32) -> Result<Self, &'static str> {
        let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let mut rest = compact.strip_prefix("(vector").and_then(|rest| rest.strip_suffix(')')).ok_or(FORM)?;
        let mut nodes = Vec::new();
        while !rest.is_empty() {
            let item = rest.strip_prefix(',').ok_or(FORM)?;
            rest = match item.strip_prefix('[') {
                Some(list) => {
                    let (list, behind) = list.split_once("]x").ok_or(FORM)?;
                    let (times, behind) = read_number(behind)?;
                    let mut once = Vec::new();
                    let mut list = read_block(list, size, &mut once)?;
                    while !list.is_empty() {
                        list = read_block(list.strip_prefix(',').ok_or(FORM)?, size, &mut once)?;
                    }
                    // No more nodes are needed than there are ranks.
                    let room = (size as usize).saturating_sub(nodes.len());
                    nodes.extend(once.iter().cycle().take((times as usize).saturating_mul(once.len()).min(room)));
                    behind
                }
                None => read_block(item, size, &mut nodes)?,
            };
        }
        if nodes.is_empty() {
            return Err(FORM);
        }
        Ok(Self::of_names(nodes.into_iter().cycle().take(size as usize)))
    }

    /// The number of ranks in the job.
    pub(super) fn size(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// The number of hosts.
    pub(super) fn hosts(&self) -> u32 {
        self.firsts.len() as u32
    }

    /// The host of a rank. `None` if there is no such rank.
    pub(super) fn host_of(&self, rank: u32) -> Option<u32> {
        self.hosts.get(rank as usize).copied()
    }

    /// The first rank of each host.
    pub(super) fn firsts(&self) -> &[u32] {
        &self.firsts
    }

    /// The ranks of a host.
    pub(super) fn ranks_on(&self, host: u32) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.hosts).filter(move |&(_, &of)| of == host).map(|(rank, _)| rank)
    }
}

const FORM: &str = "it is not of the form (vector,(node,nodes,ranks),...)";

/// Reads a block and appends the node of each of its ranks, up to `size` nodes in all. Returns the text behind the block.
fn read_block<'a>(text: &'a str, size: u32, nodes: &mut Vec<u32>) -> Result<&'a str, &'static str> {
    let ([first, count, ranks], behind) = match text.strip_prefix('(') {
        None => read_number(text).map(|(node, behind)| ([node, 1, 1], behind))?,
        Some(text) => {
            let (first, rest) = read_number(text)?;
            let (count, rest) = read_number(rest.strip_prefix(',').ok_or(FORM)?)?;
            let (ranks, rest) = read_number(rest.strip_prefix(',').ok_or(FORM)?)?;
            ([first, count, ranks], rest.strip_prefix(')').ok_or(FORM)?)
        }
    };
    let most = PROCS_MAX as u32;
    if first >= most || count == 0 || count > most || ranks == 0 || ranks > most {
        return Err("it has a block without nodes or ranks, or with more than there can be");
    }
    let of_block = (first..first + count).flat_map(|node| std::iter::repeat_n(node, ranks as usize));
    nodes.extend(of_block.take((size as usize).saturating_sub(nodes.len())));
    Ok(behind)
}

/// Reads the number at the start. Returns it and the text behind it.
fn read_number(text: &str) -> Result<(u32, &str), &'static str> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, behind) = text.split_at(digits);
    number.parse().map(|number| (number, behind)).map_err(|_| FORM)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(text: &str, size: u32) -> Vec<u32> {
        HostMap::parse_vector(text, size).unwrap().hosts
    }

    #[test]
    fn blocks_are_read_and_repeated() {
        assert_eq!(hosts("(vector,(0,1,3))", 3), [0, 0, 0]);
        assert_eq!(hosts("(vector,(0,2,2))", 4), [0, 0, 1, 1]);
        assert_eq!(hosts("(vector,(0,2,1))", 5), [0, 1, 0, 1, 0], "round robin");
        assert_eq!(hosts("(vector,(0,2,2),(2,1,1))", 5), [0, 0, 1, 1, 2]);
        assert_eq!(hosts("(vector,[(0,2,1)]x2)", 4), [0, 1, 0, 1], "as hydra writes it from version 5 on");
        assert_eq!(hosts("(vector,(0,1,2),[(1,2,1),(0,1,1)]x2,(3,1,1))", 9), [0, 0, 1, 2, 0, 1, 2, 0, 3]);
        assert_eq!(hosts("(vector,(0,1,2),1,[3,(0,1,1)]x2,0)", 8), [0, 0, 1, 2, 0, 2, 0, 0]);
        assert_eq!(hosts("(vector,0)", 1), [0]);
        assert_eq!(hosts("(vector,[(0,1,1)]x4000000000)", 2), [0, 0]);
        assert_eq!(hosts(" (vector, (4,2,1))", 2), [0, 1], "numbers of nodes are the launcher's own");
        let map = HostMap::parse_vector("(vector,(7,3,2))", 6).unwrap();
        assert_eq!((map.hosts(), map.firsts()), (3, &[0, 2, 4][..]));
        assert_eq!(map.ranks_on(1).collect::<Vec<_>>(), [2, 3]);
        assert_eq!((map.host_of(5), map.host_of(6)), (Some(2), None));
    }

    #[test]
    fn what_is_no_mapping_is_refused_whatever_it_is() {
        let wrong = [
            "",
            "(vector)",
            "(vector,)",
            "(vector,())",
            "(vector,(0,1))",
            "(vector,(0,1,2)",
            "(vector,(0,0,2))",
            "(vector,(0,1,0))",
            "(vector,(0,4294967295,1))",
            "(vector,(4294967295,1,1))",
            "(vector,(0,-1,1))",
            "(vector,(0,1,2,3))",
            "(list,(0,1,2))",
            "(vector,x)",
            "(vector0)",
            "(vector,99999999)",
            "(vector,[0,]x2)",
            "(vector,[0(1,1,1)]x2)",
            "(vector,[(0,1,2)])",
            "(vector,[(0,1,2)]x)",
            "(vector,[(0,1,2)]x0)",
            "(vector,[]x2)",
            "(vector,[(0,1,2)]x2(0,1,1))",
            "(vector,[(0,1,2)]x2,)",
            "(vector,[[(0,1,2)]x2]x2)",
            "(vector,(0,1,2),)",
        ];
        for text in wrong {
            assert!(HostMap::parse_vector(text, 4).is_err(), "{text}");
        }
    }

    #[test]
    fn names_of_hosts_make_a_map_too() {
        let map = HostMap::of_names(["b", "a", "b", "c"]);
        assert_eq!((map.hosts, map.firsts), (vec![0, 1, 0, 2], vec![0, 1, 3]));
    }
}
