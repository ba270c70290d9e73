//! Type signatures of messages, where the application has them checked: names of the elements' types, by short numbers.

use crate::{Bool, Row};
use std::any::Any;
use std::fmt;

/// Number of a type, in byte 3 of an envelope's header. 0: the sender does not say.
pub type TypeNumber = u8;

/// Bytes of a type's name at most; of a longer one the first are told.
pub const TYPE_NAME_MAX: usize = 512;

/// What is known of the types of messages, here and at each peer. There is one only if types are checked.
///
/// A sender numbers the types that it sends, from 1 on in the order of their first use. Before the first message of a type goes
/// to a peer, its name goes there.
#[derive(Default)]
pub struct Signatures {
    /// Names of the types that were posted here, by number less 1. Written by posting.
    pub names: Vec<&'static str>,
    /// The type of each operation, by CAR row. Written by posting; 0 for none.
    pub operations: Vec<TypeNumber>,
    /// The type of each unexpected message, by its entry. Written by Match; its sender's number.
    pub unexpected: Vec<TypeNumber>,
    /// What peers were told and have told, by VC row. Written by Post and Match.
    pub peers: Vec<PeerTypes>,
    /// Receives whose message is of another type: the row, and what its sender calls it. Written by Match.
    pub mismatches: Vec<(Row, String)>,
}

/// What a peer was told of types, and has told. A row of [`Signatures::peers`].
#[derive(Default)]
pub struct PeerTypes {
    /// How many names the peer was told; `None` before it knows that types are checked here.
    pub told: Option<TypeNumber>,
    /// The names of the peer's types, by number less 1; `None` before it has said that it checks types.
    pub names: Option<Vec<String>>,
    /// The state that a transport keeps for the name that is on its way.
    pub state: Option<Box<dyn Any + Send + Sync>>,
}

impl Signatures {
    /// The number of a type, which gets one if it has none. 0 if there is no type, or if there are too many.
    pub fn number(&mut self, name: Option<&'static str>) -> TypeNumber {
        let Some(name) = name.map(element) else { return 0 };
        let known = self.names.iter().position(|known| *known == name);
        let Ok(number) = TypeNumber::try_from(known.unwrap_or(self.names.len()) + 1) else { return 0 };
        if known.is_none() {
            self.names.push(name);
        }
        number
    }

    /// The name of one's own type; empty for 0.
    pub fn name(&self, number: TypeNumber) -> &'static str {
        number.checked_sub(1).and_then(|index| self.names.get(usize::from(index))).copied().unwrap_or_default()
    }

    /// What was told of types to and by a VC's peer.
    pub fn peer(&mut self, vc: Row) -> &mut PeerTypes {
        at(&mut self.peers, vc)
    }

    /// The place of an operation's type.
    pub fn operation(&mut self, row: Row) -> &mut TypeNumber {
        at(&mut self.operations, row)
    }

    /// The place of the type of an unexpected message.
    pub fn unexpected(&mut self, entry: Row) -> &mut TypeNumber {
        at(&mut self.unexpected, entry)
    }
}

impl PeerTypes {
    /// The name of a type of the peer; `None` if it has not told it.
    pub fn name(&self, number: TypeNumber) -> Option<&str> {
        let index = usize::from(number.checked_sub(1)?);
        self.names.as_ref()?.get(index).map(String::as_str)
    }
}

impl fmt::Debug for Signatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signatures").field("names", &self.names).finish_non_exhaustive()
    }
}

/// A column that grows with the rows that are used.
fn at<T: Default>(column: &mut Vec<T>, row: Row) -> &mut T {
    let row = row as usize;
    if row >= column.len() {
        column.resize_with((row + 1).next_power_of_two(), T::default);
    }
    &mut column[row]
}

/// The type of the elements of arrays: a message of `[f64; 3]`s is one of `f64`s, and one of [`Bool`]s is one of `bool`s.
fn element(mut name: &'static str) -> &'static str {
    while let Some((inner, _)) = name.strip_prefix('[').and_then(|inner| inner.rsplit_once("; ")) {
        name = inner;
    }
    // What is sent as one is received as the other.
    if name == std::any::type_name::<Bool>() { "bool" } else { name }
}

/// As much of a name as is told.
pub fn told(name: &str) -> &str {
    let mut end = name.len().min(TYPE_NAME_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_has_one_number_and_arrays_have_that_of_their_elements() {
        let mut types = Signatures::default();
        let name = std::any::type_name::<f64>;
        assert_eq!((types.number(None), types.number(Some(name()))), (0, 1));
        assert_eq!(types.number(Some(std::any::type_name::<[[f64; 3]; 2]>())), 1);
        assert_eq!(types.number(Some("u8")), 2);
        assert_eq!(types.number(Some(std::any::type_name::<[Bool; 2]>())), types.number(Some("bool")));
        assert_eq!((types.name(0), types.name(1), types.name(2), types.name(3)), ("", "f64", "u8", "bool"));
    }

    #[test]
    fn more_types_than_numbers_are_not_told_apart() {
        let mut types = Signatures::default();
        let names: Vec<&'static str> = (0..300).map(|i| &*Box::leak(format!("T{i}").into_boxed_str())).collect();
        let numbers: Vec<_> = names.iter().map(|name| types.number(Some(name))).collect();
        assert_eq!((numbers[254], numbers[255], numbers[299], types.names.len()), (255, 0, 0, 255));
    }

    #[test]
    fn a_long_name_is_told_in_part() {
        let name = "é".repeat(TYPE_NAME_MAX);
        assert_eq!(told(&name).len(), TYPE_NAME_MAX);
        assert_eq!(told(&format!("a{name}")).len(), TYPE_NAME_MAX - 1);
        assert_eq!(told("f64"), "f64");
    }

    #[test]
    fn columns_grow_with_their_rows() {
        let mut types = Signatures::default();
        *types.operation(9) = 3;
        assert_eq!((*types.operation(9), *types.operation(0), *types.unexpected(70)), (3, 0, 0));
        let peer = types.peer(2);
        assert_eq!((peer.name(1), peer.told), (None, None));
        peer.names = Some(vec!["i32".into()]);
        assert_eq!((peer.name(1), peer.name(0), peer.name(2)), (Some("i32"), None, None));
    }
}
