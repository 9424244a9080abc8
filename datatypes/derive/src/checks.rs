//! Rejects types that cannot derive `Datatype`, with helpful errors.

use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, Type};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    C,
    Transparent,
}

pub(crate) fn layout(input: &DeriveInput) -> syn::Result<Layout> {
    if let Data::Enum(data) = &input.data {
        return Err(Error::new(
            data.enum_token.span(),
            "an enum has no datatype: a received number might not be a variant; send its discriminant as an integer, \
             and convert it with TryFrom",
        ));
    }
    if let Data::Union(data) = &input.data {
        return Err(Error::new(
            data.union_token.span(),
            "a union has no datatype: some of its bytes might not be initialised; send one of its fields",
        ));
    }
    let mut found = None;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("repr")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("C") {
                found = Some(Layout::C);
            } else if meta.path.is_ident("transparent") {
                found = Some(Layout::Transparent);
            } else if meta.input.peek(syn::token::Paren) {
                // `align(N)` and `packed(N)` are allowed: the generated code gets the offsets from the compiler.
                let content;
                syn::parenthesized!(content in meta.input);
                content.parse::<proc_macro2::TokenStream>()?;
            }
            Ok(())
        })?;
    }
    found.ok_or_else(|| {
        Error::new(
            input.ident.span(),
            "#[derive(Datatype)] needs #[repr(C)] or #[repr(transparent)]: without it the order of the fields is \
             unspecified, and might differ in the receiving program; write #[repr(C)] above the structure",
        )
    })
}

/// Returns the fields, or an error if the form of the structure or of a field shows that it has no datatype.
pub(crate) fn fields(input: &DeriveInput) -> syn::Result<&Fields> {
    if let Some(lifetime) = input.generics.lifetimes().next() {
        return Err(Error::new(
            lifetime.span(),
            "a structure that borrows has no datatype: addresses mean nothing to another process; send what it borrows",
        ));
    }
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.ident.span(), "only structures have a datatype"));
    };
    let mut all: Option<Error> = None;
    for field in &data.fields {
        if let Err(why) = check_type(&field.ty) {
            match &mut all {
                Some(all) => all.combine(why),
                None => all = Some(why),
            }
        }
    }
    match all {
        Some(why) => Err(why),
        None => Ok(&data.fields),
    }
}

fn check_type(ty: &Type) -> syn::Result<()> {
    let why = match ty {
        Type::Reference(_) | Type::Ptr(_) => {
            "addresses mean nothing to another process; send the value at the address"
        }
        Type::FnPtr(_) => "addresses of code mean nothing to another process",
        Type::Tuple(tuple) if !tuple.elems.is_empty() => {
            "the layout of a tuple is not fixed; make it a structure with #[repr(C)] and derive Datatype for it"
        }
        Type::Slice(_) => "a slice has no length of its own; use an array",
        Type::Array(array) => return check_type(&array.elem),
        Type::Paren(inner) => return check_type(&inner.elem),
        Type::Group(inner) => return check_type(&inner.elem),
        _ => return Ok(()),
    };
    Err(Error::new(ty.span(), why))
}
