//! Splits: new communicators of the ranks with the same color.

use std::ops::Range;
use std::sync::Arc;

use mpj_collectives::Operation;
use mpj_collectives::inter::Groups;
use mpj_devices::cores::HostPart;
use mpj_devices::{Group, HostId, PeerId};

use super::inter::Remote;
use super::{Comm, Definition, UNDEFINED};
use crate::collective::call_id::CallDigest;
use crate::error::{Error, ErrorClass, Result};
use crate::info::Info;

/// The ranks that share a communicator after [`split_type`](Comm::split_type): those on the same part of a host.
///
/// Except for [`Host`](Self::Host), a rank belongs to a part if all logical processors on which the calling thread may
/// run are in it, as `mpjrun --bind` arranges.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum SplitType {
    /// One host, whose ranks can share memory (MPI_COMM_TYPE_SHARED).
    Host,
    /// A NUMA node of a host: the processors that are nearest to one part of its memory.
    NumaNode,
    /// A processor package of a host.
    Socket,
    /// The processors of a host that share a last-level (L3) cache; those of a socket if the system reports no such cache.
    Cache,
    /// One core of a host.
    Core,
}

/// The word of a rank without a color.
pub(super) const NO_COLOR: u64 = u64::MAX;

/// The bits of a hardware color: the type, the host, and the number of the part on the host.
const TYPE_SHIFT: u32 = 56;
const HOST_SHIFT: u32 = 24;

impl SplitType {
    const ALL: [(SplitType, &str, Option<HostPart>); 5] = [
        (SplitType::Host, "host", None),
        (SplitType::NumaNode, "NUMA node", Some(HostPart::NumaNode)),
        (SplitType::Socket, "socket", Some(HostPart::Socket)),
        (SplitType::Cache, "cache", Some(HostPart::Cache)),
        (SplitType::Core, "core", Some(HostPart::Core)),
    ];

    /// Returns the color of this thread; `None` if it is not bound to one part.
    fn color(self, HostId(host): HostId) -> Option<u64> {
        let (index, (_, _, part)) = (0u64..).zip(SplitType::ALL).find(|(_, (it, ..))| *it == self)?;
        let number = part.map_or(Some(0), HostPart::of_this_thread)?;
        let number = u64::try_from(number).ok().filter(|number| *number < 1 << HOST_SHIFT)?;
        Some(index << TYPE_SHIFT | u64::from(host) << HOST_SHIFT | number)
    }

    /// Returns the name of the hardware resource, such as `mpj://socket`, for the hint `mpi_hw_resource_type`.
    pub fn resource_name(self) -> String {
        let name = SplitType::ALL.iter().find(|(it, ..)| *it == self).map_or("unknown", |it| it.1);
        format!("mpj://{}", name.replace(' ', "_"))
    }

    /// Returns the type with this [resource name](Self::resource_name); `None` if there is no such type.
    pub fn from_resource_name(name: &str) -> Option<Self> {
        SplitType::ALL.iter().map(|it| it.0).find(|it| it.resource_name() == name)
    }

    /// Returns, for the resource name of each type, whether this thread may run on one part only: `true` or `false`
    /// (MPI_Get_hw_resource_info).
    ///
    /// ```
    /// let info = mpj::SplitType::resource_info();
    /// assert_eq!(info.get("mpj://host"), Some("true"));
    /// ```
    pub fn resource_info() -> Info {
        let mut info = Info::new();
        for (split_type, _, part) in SplitType::ALL {
            let is_bound = part.is_none_or(|part| part.of_this_thread().is_some());
            let _ = info.set(&split_type.resource_name(), &is_bound.to_string());
        }
        info
    }

    fn name(index: u64) -> &'static str {
        usize::try_from(index).ok().and_then(|index| SplitType::ALL.get(index)).map_or("unknown", |it| it.1)
    }
}

fn describe_hardware(color: u64) -> String {
    let (index, number) = (color >> TYPE_SHIFT, color & ((1 << HOST_SHIFT) - 1));
    let host = format!("host {}", color >> HOST_SHIFT & u64::from(u32::MAX));
    if index == 0 { host } else { format!("{host} {} {number}", SplitType::name(index)) }
}

/// The members of a new group, in its order.
struct Members {
    /// Their ranks in the channel of the collectives.
    ranks: Vec<u32>,
    group: Group,
    /// The context id of the first member.
    id: u64,
}

impl Members {
    /// Returns the members of `group` with this color. `all` has three words for each rank of the channel: a color, a key
    /// and a context id. The ranks of `group` are `ranks` there.
    fn of(color: u64, all: &[u64], ranks: Range<u32>, group: &Group) -> Self {
        let words = |rank: u32| &all[3 * rank as usize..][..3];
        let key = |rank: u32| (words(rank)[1] as u32).cast_signed();
        let first = ranks.start;
        let mut ranks: Vec<u32> = ranks.filter(|rank| words(*rank)[0] == color).collect();
        ranks.sort_by_key(|rank| key(*rank));
        let peers = ranks.iter().filter_map(|rank| group.peer(rank - first));
        let group = peers.map(|PeerId(peer)| peer).collect();
        let id = ranks.first().map_or(0, |rank| words(*rank)[2]);
        Members { ranks, group, id }
    }
}

impl Comm {
    /// Creates one communicator for each color, with its ranks in order of key and then of old rank; returns `None` on
    /// ranks whose color is [`UNDEFINED`] (MPI_Comm_split). Collective.
    ///
    /// Called on an intercommunicator, it creates intercommunicators. The ranks of both groups with the same color share
    /// one; ranks whose color does not occur in the other group get `None`.
    ///
    /// # Errors
    /// As [`dup`](Self::dup); the color is negative, but not [`UNDEFINED`].
    pub fn split(&self, color: i32, key: i32) -> Result<Option<Self>> {
        let color = if color == UNDEFINED { None } else { Some(i64::from(color)) };
        self.split_opt(color, key)
    }

    /// As [`split`](Self::split). `None` stands for [`UNDEFINED`], and a color out of range is an error.
    pub(crate) fn split_opt(&self, color: Option<i64>, key: i32) -> Result<Option<Self>> {
        let word = || match color.map(i32::try_from) {
            None => Ok(NO_COLOR),
            Some(Ok(color)) if color >= 0 => Ok(color as u64),
            Some(_) => {
                let why = format!("color {} is outside 0..=2147483647", color.unwrap_or_default());
                Err(Error::new(ErrorClass::Arg, "split", why))
            }
        };
        let describe = |color| format!("color {color}");
        self.split_by(Operation::Split, word, key, |_| Ok(()), describe)
    }

    /// Creates one communicator for each part of the hardware that has ranks, with its ranks in order of key and then of
    /// old rank (MPI_Comm_split_type). Returns `None` if `split_type` is, or if this thread may run on several parts.
    /// Collective; all ranks pass the same type or `None`.
    ///
    /// # Errors
    /// As [`dup`](Self::dup); [`ErrorClass::Arg`], on all ranks, if ranks have passed different types. This communicator
    /// then stays usable.
    pub fn split_type(&self, split_type: Option<SplitType>, key: i32) -> Result<Option<Self>> {
        let host = || self.inner.common.hosts.host_of(self.me().0);
        let color = || split_type.and_then(|it| it.color(host()?)).unwrap_or(NO_COLOR);
        let check = |all: &[u64]| {
            let types = || all.iter().filter(|color| **color != NO_COLOR).map(|color| color >> TYPE_SHIFT);
            match types().min().zip(types().max()) {
                Some((one, two)) if one != two => {
                    let (one, two) = (SplitType::name(one), SplitType::name(two));
                    let why = format!("some ranks split by {one}, others by {two}");
                    Err(Error::new(ErrorClass::Arg, "split_type", why))
                }
                _ => Ok(()),
            }
        };
        self.split_by(Operation::SplitType, || Ok(color()), key, check, describe_hardware)
    }

    /// Splits by the words of the ranks. `check` gets the words of all ranks, `describe` gets that of this one.
    pub(super) fn split_by(
        &self,
        operation: Operation,
        word: impl FnOnce() -> Result<u64>,
        key: i32,
        check: impl FnOnce(&[u64]) -> Result<()>,
        describe: impl FnOnce(u64) -> String,
    ) -> Result<Option<Self>> {
        let call = operation.name();
        let created = self.collective_of_any(call, |blocking| {
            let name = self.inner.names.numbered_child(call);
            let word = word()?;
            self.check_channel_limit(call)?;
            let mine = [word, u64::from(key.cast_unsigned()), self.new_context_id()];
            let all = blocking.allgather_words(CallDigest::new(operation, 0), &mine)?;
            // All ranks find the same result, so the call itself has not failed.
            if let Err(error) = check(&all.iter().copied().step_by(3).collect::<Vec<_>>()) {
                return Ok(Err(error));
            }
            if word == NO_COLOR {
                return Ok(Ok(None));
            }
            let Groups { rank, local, remote, .. } = self.groups();
            let own = Members::of(word, &all, local, self.group());
            let position = own.ranks.iter().position(|member| *member == rank).unwrap_or(0) as u32;
            let (mut id, mut other) = (own.id, None);
            if let Some(remote_group) = self.remote_group() {
                let members = Members::of(word, &all, remote, remote_group);
                if members.ranks.is_empty() {
                    return Ok(Ok(None));
                }
                let remote = Remote::new(&own.group, members.group);
                if remote.comes_first {
                    id = members.id;
                }
                other = Some(remote);
            }
            let (name, rules) =
                (format!("{name} {}", describe(word)), Arc::clone(self.collectives().rules()));
            let definition = Definition { id, name, group: own.group, rank: position, remote: other, rules };
            self.child(definition).map(|comm| Ok(Some(comm)))
        });
        created.flatten()
    }
}
