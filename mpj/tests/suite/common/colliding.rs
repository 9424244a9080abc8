//! Two structures of the same size whose signatures, which are hashes, are equal, although their elements differ.

use mpj::Datatype;

#[rustfmt::skip]
#[repr(C)]
#[derive(Clone, Copy, Debug, Datatype)]
pub(crate) struct Bytes {
    pub(crate) f0: u8, f1: u8, f2: u8, f3: u8, f4: u8, f5: u8, f6: u8, f7: u8, f8: u8, f9: u8, f10: u8, f11: u8,
    f12: u8, f13: u8, f14: u8, f15: u8, f16: u8, f17: u8, f18: u8, f19: u8, f20: u8, f21: u8, f22: u8,
    f23: u8, f24: u8, f25: u8, f26: u8, f27: u8, f28: u8, f29: u8, f30: u8, f31: u8, f32: u8, f33: u8,
    f34: u8, f35: u8, f36: u8, f37: u8, f38: u8, f39: u8, f40: u8, f41: u8, f42: u8, f43: u8, f44: u8,
    f45: i8, f46: i8, f47: i8, f48: u8, f49: u8, f50: i8, f51: i8, f52: u8, f53: i8, f54: u8, f55: i8,
    f56: u8, f57: i8, f58: u8, f59: u8, f60: u8, f61: i8, f62: i8, f63: u8, f64: u8, f65: i8, f66: u8,
    f67: i8, f68: i8, f69: i8, f70: i8, f71: i8, f72: i8, f73: i8, f74: u8, f75: u8, f76: u8, f77: u8,
    f78: i8, f79: u8, f80: u8, f81: i8, f82: i8, f83: u8, f84: i8, f85: u8, f86: u8, f87: u8, f88: i8,
}

#[rustfmt::skip]
#[repr(C)]
#[derive(Clone, Copy, Debug, Datatype)]
pub(crate) struct WithBool {
    pub(crate) f0: bool, f1: i8, f2: u8, f3: u8, f4: u8, f5: u8, f6: u8, f7: i8, f8: u8, f9: i8, f10: i8, f11: u8,
    f12: u8, f13: u8, f14: i8, f15: i8, f16: u8, f17: i8, f18: i8, f19: i8, f20: u8, f21: u8, f22: i8,
    f23: i8, f24: i8, f25: u8, f26: u8, f27: u8, f28: i8, f29: u8, f30: u8, f31: i8, f32: u8, f33: i8,
    f34: u8, f35: i8, f36: i8, f37: i8, f38: u8, f39: u8, f40: i8, f41: u8, f42: i8, f43: u8, f44: i8,
    f45: u8, f46: u8, f47: u8, f48: u8, f49: u8, f50: u8, f51: u8, f52: u8, f53: u8, f54: u8, f55: u8,
    f56: u8, f57: u8, f58: u8, f59: u8, f60: u8, f61: u8, f62: u8, f63: u8, f64: u8, f65: u8, f66: u8,
    f67: u8, f68: u8, f69: u8, f70: u8, f71: u8, f72: u8, f73: u8, f74: u8, f75: u8, f76: u8, f77: u8,
    f78: u8, f79: u8, f80: u8, f81: u8, f82: u8, f83: u8, f84: u8, f85: u8, f86: u8, f87: u8, f88: u8,
}

impl WithBool {
    #[rustfmt::skip]
    pub(crate) const ZERO: Self = Self {
        f0: false, f1: 0, f2: 0, f3: 0, f4: 0, f5: 0, f6: 0, f7: 0, f8: 0, f9: 0, f10: 0, f11: 0, f12: 0,
        f13: 0, f14: 0, f15: 0, f16: 0, f17: 0, f18: 0, f19: 0, f20: 0, f21: 0, f22: 0, f23: 0, f24: 0,
        f25: 0, f26: 0, f27: 0, f28: 0, f29: 0, f30: 0, f31: 0, f32: 0, f33: 0, f34: 0, f35: 0, f36: 0,
        f37: 0, f38: 0, f39: 0, f40: 0, f41: 0, f42: 0, f43: 0, f44: 0, f45: 0, f46: 0, f47: 0, f48: 0,
        f49: 0, f50: 0, f51: 0, f52: 0, f53: 0, f54: 0, f55: 0, f56: 0, f57: 0, f58: 0, f59: 0, f60: 0,
        f61: 0, f62: 0, f63: 0, f64: 0, f65: 0, f66: 0, f67: 0, f68: 0, f69: 0, f70: 0, f71: 0, f72: 0,
        f73: 0, f74: 0, f75: 0, f76: 0, f77: 0, f78: 0, f79: 0, f80: 0, f81: 0, f82: 0, f83: 0, f84: 0,
        f85: 0, f86: 0, f87: 0, f88: 0,
    };
}
