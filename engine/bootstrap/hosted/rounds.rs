//! The values of one fence: tables in a file in memory that the ranks of a group share.

use crate::bootstrap::error::BootstrapError;
use crate::bootstrap::table;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, memfd_create};
use rustix::io::pread;
use std::os::fd::OwnedFd;

const CUT_OFF: BootstrapError = BootstrapError::Protocol("values of other hosts that are cut off");

/// The values of one fence. See the module's documentation.
pub(super) struct Round {
    /// The tables, each behind its length.
    file: OwnedFd,
}

impl Round {
    /// Writes tables into a new file, and seals it: nobody can change it afterwards.
    pub(super) fn of(tables: &[Vec<u8>]) -> Result<Self, BootstrapError> {
        let failed =
            |operation| move |source: rustix::io::Errno| BootstrapError::System { operation, source: source.into() };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("tickwire-cards", flags).map_err(failed("memfd_create"))?;
        let mut to = std::fs::File::from(file);
        let mut write = |bytes: &[u8]| std::io::Write::write_all(&mut to, bytes);
        for table in tables {
            write(&(table.len() as u64).to_le_bytes())
                .and_then(|()| write(table))
                .map_err(|source| BootstrapError::System { operation: "write to a memfd", source })?;
        }
        let file = OwnedFd::from(to);
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&file, seals).map_err(failed("fcntl(F_ADD_SEALS)"))?;
        Ok(Self { file })
    }

    /// The values in a file that another rank of the group has passed.
    pub(super) fn received(file: OwnedFd) -> Self {
        Self { file }
    }

    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Calls `take` with each rank and value under `key`.
    pub(super) fn values(&self, size: u32, key: &str, mut take: impl FnMut(u32, &[u8])) -> Result<(), BootstrapError> {
        let whole = self.read()?;
        let mut rest = whole.as_slice();
        while !rest.is_empty() {
            let (length, behind) = rest.split_first_chunk::<8>().ok_or(CUT_OFF)?;
            let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| CUT_OFF)?;
            let (table, behind) = behind.split_at_checked(length).ok_or(CUT_OFF)?;
            table::values(table, size, key, &mut take)?;
            rest = behind;
        }
        Ok(())
    }

    fn read(&self) -> Result<Vec<u8>, BootstrapError> {
        let failed = |source: rustix::io::Errno| BootstrapError::System { operation: "pread", source: source.into() };
        let bytes = fstat(&self.file).map_err(failed)?.st_size as usize;
        let mut whole = vec![0; bytes];
        let mut at = 0;
        while at < bytes {
            match pread(&self.file, &mut whole[at..], at as u64).map_err(failed)? {
                0 => return Err(CUT_OFF),
                read => at += read,
            }
        }
        Ok(whole)
    }
}
