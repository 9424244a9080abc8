//! Creation of the communicators of a schedule.

use std::collections::BTreeMap;

use mpj::{Group, Intracomm};

use super::plan::CommPlan;
use super::random::Random;

#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    Dup,
    Idup,
    Split,
    Create,
    /// Only the members of each part call it.
    CreateGroup,
}

/// The creation of communicators from another one.
#[derive(Debug)]
pub(super) struct Creation {
    how: How,
    parent: CommPlan,
    pub(super) parts: Vec<CommPlan>,
    tag: i32,
}

/// Plans new communicators, so that three to nine exist.
pub(super) fn grow(random: &mut Random, live: &mut Vec<CommPlan>) -> Vec<Creation> {
    let mut creations = Vec::new();
    for number in 0..2 + random.below(2) {
        if live.len() > 6 {
            break;
        }
        let parent = live[random.below(live.len())].clone();
        let how = random.pick(&[How::Dup, How::Idup, How::Split, How::Create, How::CreateGroup]);
        let next = live.iter().map(|comm| comm.id).max().unwrap_or(0) + 1;
        let lists = match how {
            How::Dup | How::Idup => vec![parent.members.clone()],
            _ => parts(random, &parent.members),
        };
        let parts: Vec<CommPlan> =
            lists.into_iter().zip(next..).map(|(members, id)| CommPlan { id, members }).collect();
        live.extend(parts.iter().cloned());
        creations.push(Creation { how, parent, parts, tag: number as i32 });
    }
    creations
}

/// Returns up to three disjoint parts of some members, each in a random order.
fn parts(random: &mut Random, members: &[usize]) -> Vec<Vec<usize>> {
    let mut members = members.to_vec();
    random.shuffle(&mut members);
    if random.percent(30) {
        members.truncate(1 + random.below(members.len()));
    }
    let mut parts = vec![Vec::new(); 1 + random.below(3)];
    for member in members {
        let part = random.below(parts.len());
        parts[part].push(member);
    }
    parts.retain(|part| !part.is_empty());
    parts
}

impl Creation {
    /// Creates the communicators. Every member of the parent makes this call.
    pub(super) fn perform(&self, comms: &mut BTreeMap<usize, Intracomm>, me: usize) -> mpj::Result<()> {
        let Some(parent) = comms.get(&self.parent.id).cloned() else { return Ok(()) };
        let mine = self.parts.iter().zip(0..).find(|(part, _)| part.members.contains(&me));
        let created = match self.how {
            How::Dup => Some(parent.dup()?),
            How::Idup => Some(parent.idup()?.wait()?),
            How::Split => {
                let key = mine.map_or(0, |(part, _)| position(&part.members, me));
                parent.split(mine.map(|(_, color)| color), key as i32)?
            }
            How::Create => parent.create(&self.group(&parent, mine.map(|(part, _)| part))?)?,
            How::CreateGroup => match mine {
                Some((part, _)) => Some(parent.create_group(&self.group(&parent, Some(part))?, self.tag)?),
                None => None,
            },
        };
        assert_eq!(created.is_some(), mine.is_some(), "{self:?} on rank {me}");
        let Some((comm, (part, _))) = created.zip(mine) else { return Ok(()) };
        let place = (position(&part.members, me), part.members.len());
        assert_eq!((comm.rank(), comm.size()), place, "{self:?} on rank {me}");
        comms.insert(part.id, comm);
        Ok(())
    }

    fn group(&self, parent: &Intracomm, part: Option<&CommPlan>) -> mpj::Result<Group> {
        let members = part.map_or(&[][..], |part| &part.members);
        let ranks: Vec<usize> = members.iter().map(|rank| position(&self.parent.members, *rank)).collect();
        parent.group().include(&ranks)
    }
}

fn position(members: &[usize], rank: usize) -> usize {
    members.iter().position(|member| *member == rank).expect("a member")
}
