//! `#[derive(Datatype)]`: the datatype of a struct, made of those of its fields (`MPI_Type_create_struct`).
//!
//! The derive is used through `tickwire`, which exports it beside the type of the same name.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Fields, Index, Member, Meta, Result, parse_macro_input, parse_quote};

/// Makes a struct an element of typed buffers (`tickwire::Described`): its fields are sent and received, what lies between them
/// is not.
///
/// Fields are numbers and other `Basic` types, arrays, and structs that have the derive too. One with `#[datatype(skip)]` may be
/// of any type: it is not sent, and keeps its value when a message is received.
///
/// The datatype of a struct is made once, that of a generic one at each use.
#[proc_macro_derive(Datatype, attributes(datatype))]
pub fn datatype(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    described(input).unwrap_or_else(Error::into_compile_error).into()
}

fn described(mut input: DeriveInput) -> Result<Tokens> {
    let name = &input.ident;
    let fields = match &input.data {
        Data::Struct(data) => &data.fields,
        Data::Enum(_) | Data::Union(_) => {
            let words = "only structs have a datatype: bytes of a message could be no value of an enum or a union";
            return Err(Error::new(name.span(), words));
        }
    };
    let sent = sent(fields)?;
    let (members, types): (Vec<_>, Vec<_>) = sent.iter().map(|(member, field)| (member, &field.ty)).unzip();
    let layout = quote! {
        ::tickwire::internals::components::layout_of::<Self>(&[
            #((
                ::core::mem::offset_of!(Self, #members),
                <#types as ::tickwire::Described>::layout(),
            )),*
        ])
    };
    let types: Vec<_> = types.into_iter().cloned().collect();
    // A static of a generic struct would be one for all its types.
    let is_generic = input.generics.type_params().next().is_some() || input.generics.const_params().next().is_some();
    let layout = match is_generic {
        true => layout,
        false => quote! {
            static LAYOUT: ::std::sync::OnceLock<::tickwire::Datatype> = ::std::sync::OnceLock::new();
            LAYOUT.get_or_init(|| #layout).clone()
        },
    };
    if !input.generics.params.is_empty() {
        let bounds = input.generics.make_where_clause();
        types.iter().for_each(|of| bounds.predicates.push(parse_quote!(#of: ::tickwire::Described)));
    }
    let name = &input.ident;
    let (generics, arguments, bounds) = input.generics.split_for_impl();
    Ok(quote! {
        // SAFETY: each field that is named can be any bytes, and is where it is said to be.
        #[automatically_derived]
        #[allow(unsafe_code)]
        unsafe impl #generics ::tickwire::Described for #name #arguments #bounds {
            fn layout() -> ::tickwire::Datatype {
                #layout
            }
        }
    })
}

/// The fields that are sent.
fn sent(fields: &Fields) -> Result<Vec<(Member, &Field)>> {
    let mut sent = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let member = match &field.ident {
            Some(name) => Member::Named(name.clone()),
            None => Member::Unnamed(Index::from(index)),
        };
        if !is_skipped(field)? {
            sent.push((member, field));
        }
    }
    Ok(sent)
}

/// Whether a field has `#[datatype(skip)]`.
fn is_skipped(field: &Field) -> Result<bool> {
    let mut skipped = false;
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("datatype")) {
        let unknown = || Error::new(attribute.meta.span(), "expected #[datatype(skip)]");
        let Meta::List(list) = &attribute.meta else { return Err(unknown()) };
        list.parse_nested_meta(|meta| if meta.path.is_ident("skip") { Ok(()) } else { Err(unknown()) })?;
        skipped = true;
    }
    Ok(skipped)
}
