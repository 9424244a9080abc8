//! Programs that misuse the safe interface, and that the compiler must reject. Each example names the error code of
//! its rejection. A stable `rustdoc` does not check the codes; `tests/suite/compile_fail.rs` does.
//!
//! Examples of single functions are in their documentation.

/// A request cannot leave its scope:
/// ```compile_fail,E0521
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// let mut buf = [0u8; 4];
/// let mut kept = None;
/// world.scope(|s| {
///     kept = Some(s.irecv(&mut buf, 0, 0)?);
///     Ok(())
/// })
/// # }
/// ```
/// An inner scope cannot give its request to the outer one, whose end is later:
/// ```compile_fail,E0521
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// let mut buf = [0u8; 4];
/// world.scope(|_outer| {
///     let mut requests = Vec::new();
///     world.scope(|inner| {
///         requests.push(inner.irecv(&mut buf, 0, 0)?);
///         Ok::<(), mpj::Error>(())
///     })?;
///     requests.pop().expect("one").wait().map(drop)
/// })
/// # }
/// ```
/// The scope itself cannot be kept:
/// ```compile_fail,E0521
/// # fn f(world: &mpj::World) {
/// let mut kept = None;
/// world.scope(|s| kept = Some(s));
/// # }
/// ```
/// The closure's memory is freed before the scope ends:
/// ```compile_fail,E0597
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// world.scope(|s| {
///     let buf = [0u8; 4];
///     s.isend(&buf, 0, 0)?;
///     Ok(())
/// })
/// # }
/// ```
/// Two operations cannot write to one buffer:
/// ```compile_fail,E0499
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// let mut buf = [0u8; 4];
/// world.scope(|s| {
///     let _first = s.irecv(&mut buf, 0, 0)?;
///     let _second = s.irecv(&mut buf, 0, 1)?;
///     Ok(())
/// })
/// # }
/// ```
/// One operation cannot read the buffer that another one writes:
/// ```compile_fail,E0502
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// let mut buf = [0u8; 4];
/// world.scope(|s| {
///     let _receiving = s.irecv(&mut buf, 0, 0)?;
///     s.isend(&buf, 0, 1)?;
///     Ok(())
/// })
/// # }
/// ```
/// A buffer cannot be written while it is sent:
/// ```compile_fail,E0506
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// let mut value = 1u8;
/// world.scope(|s| {
///     let sending = s.isend(&value, 0, 0)?;
///     value = 2;
///     sending.wait().map(drop)
/// })
/// # }
/// ```
mod scopes {}

/// An operation outside of a scope cannot borrow its buffer:
/// ```compile_fail,E0597
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// let buf = [0u8; 4];
/// world.isend(&buf, 0, 0)?.wait()?;
/// # Ok(())
/// # }
/// ```
/// ```compile_fail,E0597
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// let mut buf = [0u8; 4];
/// world.irecv(&mut buf, 0, 0)?.wait()?;
/// # Ok(())
/// # }
/// ```
/// ```compile_fail,E0597
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// let (mine, mut sum) = ([1u8; 4], [0u8; 4]);
/// world.start(mpj::coll::allreduce(mine, &mut sum, mpj::Op::Sum))?.wait()?;
/// # Ok(())
/// # }
/// ```
/// The operation owns the buffer:
/// ```compile_fail,E0382
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// let buf = vec![0u8; 4];
/// let sending = world.isend(buf, 0, 0)?;
/// assert_eq!(buf[0], 0);
/// sending.wait()?;
/// # Ok(())
/// # }
/// ```
/// An outcome is taken once:
/// ```compile_fail,E0382
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// let sending = world.isend([0u8; 4], 0, 0)?;
/// sending.wait()?;
/// sending.wait()?;
/// # Ok(())
/// # }
/// ```
/// A matched message is received once:
/// ```compile_fail,E0382
/// # fn f(message: mpj::Message) -> mpj::Result<()> {
/// message.recv(&mut [0u8; 4])?;
/// message.recv(&mut [0u8; 4])?;
/// # Ok(())
/// # }
/// ```
/// Any thread that makes progress can use or drop the buffer, so it must be `Send` and `Sync`:
/// ```compile_fail,E0277
/// # use mpj::{SendBuf, raw::Buf};
/// # struct Shared(std::rc::Rc<[u8]>);
/// # unsafe impl SendBuf for Shared {
/// #     fn send_buf(&self) -> Buf { Buf::slice(&self.0) }
/// # }
/// # fn f(world: &mpj::World, buf: Shared) -> mpj::Result<()> {
/// world.isend(buf, 0, 0)?.wait()?;
/// # Ok(())
/// # }
/// ```
mod requests {}

/// The buffer of a persistent message belongs to the call until its end:
/// ```compile_fail,E0499
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// let mut receive = world.recv_init([0u8; 4], 0, 0)?;
/// let active = receive.start()?;
/// receive.buffers_mut()[0] = 1;
/// active.wait()?;
/// # Ok(())
/// # }
/// ```
/// The items of a call cannot be kept until the next one:
/// ```compile_fail,E0499
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// let mut receive = world.recv_init([0u8; 4], 0, 0)?;
/// let first = receive.start()?.wait()?;
/// receive.start()?.wait()?;
/// assert_eq!(first[0], 0);
/// # Ok(())
/// # }
/// ```
/// The same for a part that has arrived:
/// ```compile_fail,E0505
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// let mut receive = world.precv_init([0u8; 4], 2, 0, 0)?;
/// let arriving = receive.start()?;
/// let part = arriving.part(0)?;
/// arriving.wait()?;
/// assert!(part.is_none());
/// # Ok(())
/// # }
/// ```
mod persistent {}

/// A block that was read in place returns to its owner when it is dropped, so its items cannot be used afterwards:
/// ```compile_fail,E0505
/// # fn f(block: mpj::ReceivedBlock) -> Result<(), Box<dyn std::error::Error>> {
/// let items = block.try_as_slice::<f64>()?;
/// drop(block);
/// assert_eq!(items[0], 0.0);
/// # Ok(())
/// # }
/// ```
/// Two mutable views of one slice are made by `SplitViews`, which checks that they do not overlap:
/// ```compile_fail,E0499
/// # use mpj::{Datatype, ViewMut};
/// # fn f(column: &Datatype, mut grid: [f64; 12]) -> Result<(), mpj::ViewError> {
/// let left = ViewMut::new(&mut grid, 0, column, 1)?;
/// let right = ViewMut::new(&mut grid, 3, column, 1)?;
/// drop((left, right));
/// # Ok(())
/// # }
/// ```
/// A view keeps the slice borrowed:
/// ```compile_fail,E0506
/// # use mpj::{Datatype, View};
/// # fn f(world: &mpj::World, column: &Datatype, mut grid: [f64; 12]) -> Result<(), mpj::BoxError> {
/// let view = View::new(&grid, 0, column, 1)?;
/// grid[0] = 1.0;
/// world.send(&view, 0, 0)?;
/// # Ok(())
/// # }
/// ```
mod views {}

/// Padding is uninitialised memory, so a structure without a datatype cannot be sent, viewed or received:
/// ```compile_fail,E0277
/// #[repr(C)]
/// #[derive(Clone, Copy)]
/// struct Padded { kind: u8, value: u32 }
/// # fn f(world: &mpj::World, items: &[Padded]) -> mpj::Result<()> {
/// world.send(items, 0, 0)
/// # }
/// ```
/// ```compile_fail,E0277
/// #[repr(C)]
/// #[derive(Clone, Copy)]
/// struct Padded { kind: u8, value: u32 }
/// # fn f(column: &mpj::Datatype, items: &[Padded]) {
/// let _ = mpj::View::new(items, 0, column, 1);
/// # }
/// ```
/// A structure with a datatype might have padding, which is not sent, so it cannot be an element of `Slices`:
/// ```compile_fail,E0080
/// #[repr(C)]
/// #[derive(Clone, Copy, mpj::Datatype)]
/// struct Padded { kind: u8, value: u32 }
/// let items = [Padded { kind: 1, value: 2 }];
/// mpj::Slices::new([&items[..]]);
/// ```
/// Pointers have no meaning in another process:
/// ```compile_fail,E0277
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// world.recv(&mut [vec![0u8; 4]], 0, 0).map(drop)
/// # }
/// ```
/// ```compile_fail,E0277
/// # fn f(world: &mpj::World, items: &[&u8]) -> mpj::Result<()> {
/// world.send(items, 0, 0)
/// # }
/// ```
/// A text is sent as bytes or as an object:
/// ```compile_fail,E0277
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// world.send("text", 0, 0)
/// # }
/// ```
/// Shared memory cannot be received into:
/// ```compile_fail,E0277
/// # fn f(world: &mpj::World, mut shared: std::sync::Arc<[u8]>) -> mpj::Result<()> {
/// world.recv(&mut shared, 0, 0).map(drop)
/// # }
/// ```
/// A rank is a `usize`; the negative numbers of MPI are not ranks:
/// ```compile_fail,E0277
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// world.send(&[1u8], -1i32, 0)
/// # }
/// ```
/// Wildcards are not destinations:
/// ```compile_fail,E0277
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// world.send(&[1u8], mpj::ANY_SOURCE, 0)
/// # }
/// ```
mod buffers {}

/// Each rank can be a thread, so its function cannot use data of one thread:
/// ```compile_fail,E0277
/// let count = std::rc::Rc::new(1);
/// let _ = mpj::threads(2, |_world| Ok::<i32, mpj::Error>(*count));
/// ```
/// Any thread can run the copy hook of an attribute, or drop the attribute:
/// ```compile_fail,E0277
/// let count = std::rc::Rc::new(1);
/// let _ = mpj::Key::with_copy(move |value: &i32| Some(*value + *count));
/// ```
/// ```compile_fail,E0599
/// let _ = mpj::Key::<std::rc::Rc<i32>>::new();
/// ```
/// The hook outlives the function that creates the key:
/// ```compile_fail,E0597
/// let count = 1;
/// let count = &count;
/// let _ = mpj::Key::with_copy(|value: &i32| Some(*value + *count));
/// ```
/// Any thread can run the function of a reduction:
/// ```compile_fail,E0277
/// let count = std::rc::Rc::new(1);
/// let _ = mpj::Op::user(true, move |one: &i32, other: &i32| one + other + *count);
/// ```
mod threads {}

/// Calls that take a pointer are unsafe:
/// ```compile_fail,E0133
/// # use mpj::raw::{self, Buf, Mode};
/// # fn f(comm: &raw::Comm, items: &[u8]) -> mpj::Result<()> {
/// raw::send(comm, Buf::slice(items), 0, 0, Mode::Standard)
/// # }
/// ```
/// So is a promise about the memory of a buffer:
/// ```compile_fail,E0200
/// struct Mine([u8; 4]);
/// impl mpj::SendBuf for Mine {
///     fn send_buf(&self) -> mpj::raw::Buf { mpj::raw::Buf::slice(&self.0) }
/// }
/// ```
mod unsafe_calls {}
