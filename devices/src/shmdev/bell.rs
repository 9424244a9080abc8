//! The doorbell of another process's rank, which is asked for and comes later.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::doorbell::Doorbell;
use crate::ring::LateBell;
use crate::shmdev::Segment;
use crate::site::Bells;
use crate::sys::OwnedFd;

/// A neighbour's doorbell.
#[derive(Debug)]
pub(super) struct Bell {
    bells: Arc<dyn Bells>,
    segment: Arc<Segment>,
    rank: u32,
    /// Of the rank among those that share the memory.
    index: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// Nobody has asked for it, or it could not be had.
    Absent { why: Option<String> },
    /// It was asked for; `owed` says that it has to be rung when it comes.
    Asked { owed: bool },
    /// It has come.
    Here(Arc<Doorbell>),
}

impl Bell {
    pub(super) fn new(bells: Arc<dyn Bells>, segment: Arc<Segment>, rank: u32, index: u32) -> Arc<Self> {
        Arc::new(Bell { bells, segment, rank, index, state: Mutex::new(State::Absent { why: None }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the doorbell, which comes now or later; it is rung then if that is `owed`.
    ///
    /// # Errors
    /// It is known already that it cannot be had.
    pub(super) fn ask(self: &Arc<Self>, owed: bool) -> Result<(), String> {
        *self.state() = State::Asked { owed };
        let bell = Arc::clone(self);
        self.bells.ask(self.rank, Box::new(move |fd| bell.take(fd)));
        match &mut *self.state() {
            State::Absent { why } => Err(why.take().unwrap_or_default()),
            State::Asked { .. } | State::Here(_) => Ok(()),
        }
    }

    fn take(&self, fd: Result<OwnedFd, String>) {
        let ring = |fd| Arc::new(Doorbell::with_flag(fd, self.segment.flag(self.index)));
        let new = fd.map_or_else(|why| State::Absent { why: Some(why) }, |fd| State::Here(ring(fd)));
        let mut state = self.state();
        if let (State::Asked { owed: true }, State::Here(bell)) = (&*state, &new) {
            bell.wake();
        }
        *state = new;
    }

    /// Returns the doorbell, to ring it; if it is not here it is rung when it comes.
    fn find(self: &Arc<Self>) -> Option<Arc<Doorbell>> {
        let mut state = self.state();
        match &mut *state {
            State::Here(bell) => return Some(Arc::clone(bell)),
            State::Asked { owed } => {
                *owed = true;
                return None;
            }
            State::Absent { .. } => drop(state),
        }
        // Without it the owner sleeps until its nap ends; the next time it is asked for again.
        let _ = self.ask(true);
        match &*self.state() {
            State::Here(bell) => Some(Arc::clone(bell)),
            State::Absent { .. } | State::Asked { .. } => None,
        }
    }

    /// Returns it as what a ring is given.
    pub(super) fn late(self: Arc<Self>) -> LateBell {
        LateBell::new(move || self.find())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::Then;
    use crate::sys::Event;

    /// Questions that wait for the test.
    #[derive(Default)]
    struct Questions(Mutex<Vec<(u32, Then<OwnedFd>)>>);

    impl std::fmt::Debug for Questions {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Questions")
        }
    }

    impl Bells for Questions {
        fn ask(&self, rank: u32, then: Then<OwnedFd>) {
            self.0.lock().unwrap().push((rank, then));
        }
    }

    struct Scene {
        questions: Arc<Questions>,
        bell: Arc<Bell>,
        event: Event,
    }

    impl Scene {
        fn new() -> Self {
            let segment = Segment::create(2, 2).unwrap();
            // SAFETY: the duplicate is attached.
            let fd = unsafe { segment.descriptor() }.try_clone_to_owned().unwrap();
            let segment = Segment::attach(fd, 2).unwrap();
            let questions = Arc::<Questions>::default();
            let bell = Bell::new(Arc::clone(&questions) as _, segment, 7, 1);
            Scene { questions, bell, event: Event::alone().unwrap() }
        }

        fn asked(&self) -> Vec<Then<OwnedFd>> {
            let asked = std::mem::take(&mut *self.questions.0.lock().unwrap());
            asked.into_iter().map(|(rank, then)| (rank == 7).then_some(then).unwrap()).collect()
        }

        fn answer(&self, then: Then<OwnedFd>) {
            then(Ok(self.event.share().unwrap()));
        }

        fn rung(&self) -> bool {
            self.event.clear()
        }
    }

    #[test]
    fn a_ring_that_is_owed_is_made_up_for() {
        let scene = Scene::new();
        let mut late = Arc::clone(&scene.bell).late();
        assert!(late.get().is_none() && late.get().is_none());
        let [question] = <[_; 1]>::try_from(scene.asked()).ok().expect("one question");
        scene.answer(question);
        assert!(scene.rung() && !scene.rung());
        assert!(late.get().is_some() && scene.asked().is_empty());
    }

    #[test]
    fn a_ring_that_nobody_owes_is_not_made() {
        let scene = Scene::new();
        scene.bell.ask(false).unwrap();
        let question = scene.asked().remove(0);
        scene.answer(question);
        assert!(!scene.rung());
        let mut late = Arc::clone(&scene.bell).late();
        late.get().unwrap().wake();
        assert!(scene.rung() && scene.asked().is_empty());
    }

    #[test]
    fn a_doorbell_that_could_not_be_had_is_asked_for_again() {
        let scene = Scene::new();
        let mut late = Arc::clone(&scene.bell).late();
        for _ in 0..2 {
            assert!(late.get().is_none());
            scene.asked().remove(0)(Err("no descriptors".into()));
        }
        assert!(late.get().is_none());
        let question = scene.asked().remove(0);
        scene.answer(question);
        assert!(scene.rung() && late.get().is_some());
    }
}
