//! The rows that each caller needs: a view for each system, and for each call that is made often.

use super::*;

macro_rules! view {
    ($(#[$doc:meta])* $name:ident, $method:ident { $($field:ident: $type:ty, $how:ident;)* }) => {
        $(#[$doc])*
        #[non_exhaustive]
        pub struct $name<'w> {
            $(#[doc = view!(@doc $field)] pub $field: view!(@type $how 'w $type)),*
        }

        impl $name<'_> {
            /// # Safety
            /// The world of these addresses is borrowed, and nobody else uses the columns while this lives.
            #[expect(unsafe_code, reason = "columns of a borrowed world")]
            #[inline(always)]
            pub(super) unsafe fn at(addresses: &Addresses) -> Self {
                // SAFETY: by this function's contract; each column is borrowed once.
                unsafe { $name { $($field: view!(@borrow $how addresses, $field)),* } }
            }
        }

        impl Tables {
            $(#[$doc])*
            #[inline(always)]
            pub fn $method<'w>(&self, _world: &'w mut World) -> $name<'w> {
                // SAFETY: the world is borrowed as a whole, and the addresses are its own.
                #[expect(unsafe_code, reason = "disjoint columns of one borrowed world")]
                unsafe { $name::at(&self.addresses) }
            }
        }

        // SAFETY: the access to each column is declared.
        #[expect(unsafe_code, reason = "measured: an address costs one load where a look-up costs 16 instructions")]
        unsafe impl SystemParam for $name<'_> {
            type State = Tables;
            type Item<'w, 's> = $name<'w>;

            fn init_state(_: &mut World) -> Tables {
                own::<Self>()
            }

            fn init_access(tables: &Tables, _: &mut SystemMeta, access: &mut SystemAccess, _: &mut World) {
                $(tables.columns.$field.declare::<Self>(view!(@write $how), access);)*
            }

            #[inline(always)]
            unsafe fn get_param<'w>(
                tables: &mut Tables,
                _: &SystemMeta,
                _: UnsafeWorldCell<'w>,
                _: Tick,
            ) -> Result<$name<'w>, SystemParamValidationError> {
                // SAFETY: the executor grants the declared access, and has refreshed the addresses if rows have moved.
                Ok(unsafe { $name::at(&tables.addresses) })
            }
        }
    };
    (@doc progress) => { "The engine's one row." };
    (@doc procs) => { "Known procs." };
    (@doc inbound) => { "Submissions of other threads." };
    (@doc limits) => { "Limits." };
    (@doc notices) => { "Whom to call when requests are done." };
    (@doc arrivals) => { "Arrivals." };
    (@doc cars) => { "CARs." };
    (@doc large) => { "CARs, cold column." };
    (@doc requests) => { "Requests." };
    (@doc held) => { "Buffers of requests." };
    (@doc buffers) => { "Temporaries." };
    (@doc supplies) => { "Supplies." };
    (@doc communicators) => { "Communicators." };
    (@doc endpoints) => { "Endpoints." };
    (@doc vcs) => { "Contacted procs." };
    (@type one $life:lifetime $type:ty) => { &$life mut $type };
    (@type one_read $life:lifetime $type:ty) => { &$life $type };
    (@type with_cars $life:lifetime $type:ty) => { &$life mut [$type] };
    (@type rows $life:lifetime $type:ty) => { &$life mut [$type] };
    (@type rows_read $life:lifetime $type:ty) => { &$life [$type] };
    (@borrow one $addresses:expr, $field:ident) => { &mut *$addresses.$field.get().cast() };
    (@borrow one_read $addresses:expr, $field:ident) => { &*$addresses.$field.get().cast() };
    (@borrow rows $addresses:expr, $field:ident) => { &mut *$addresses.$field.get() };
    (@borrow rows_read $addresses:expr, $field:ident) => { &*$addresses.$field.get() };
    // As many as there are CARs, and said so: one look at a row number serves all columns of its table.
    (@borrow with_cars $addresses:expr, $field:ident) => {
        &mut *std::ptr::slice_from_raw_parts_mut($addresses.$field.get().cast(), $addresses.cars.get().len())
    };
    (@write one) => { true };
    (@write one_read) => { false };
    (@write with_cars) => { true };
    (@write rows) => { true };
    (@write rows_read) => { false };
}

view! {
    /// Everything, for code outside of systems.
    AllTables, all {
        progress: Progress, one;
        procs: ProcTable, one;
        inbound: Inbound, one;
        limits: Settings, one_read;
        notices: Notices, one;
        arrivals: Arrival, rows;
        cars: Car, rows;
        large: Large, with_cars;
        requests: Request, with_cars;
        held: Held, with_cars;
        buffers: Buffer, rows;
        supplies: Supply, rows;
        communicators: Communicator, rows;
        endpoints: Endpoint, rows;
        vcs: Vc, rows;
    }
}

view! {
    /// What an inline send touches.
    SendTables, send {
        progress: Progress, one;
        procs: ProcTable, one_read;
        communicators: Communicator, rows_read;
        endpoints: Endpoint, rows;
        vcs: Vc, rows;
    }
}

view! {
    /// What an offer touches that is made at once.
    OfferTables, offering {
        progress: Progress, one;
        procs: ProcTable, one_read;
        cars: Car, rows;
        large: Large, with_cars;
        requests: Request, with_cars;
        communicators: Communicator, rows_read;
        endpoints: Endpoint, rows;
        vcs: Vc, rows;
    }
}

view! {
    /// What posting a receive touches.
    ReceiveTables, receive {
        progress: Progress, one;
        procs: ProcTable, one_read;
        communicators: Communicator, rows_read;
        cars: Car, rows;
        requests: Request, with_cars;
        held: Held, with_cars;
        vcs: Vc, rows;
    }
}

view! {
    /// What asking after a request touches.
    RequestTables, request {
        progress: Progress, one;
        cars: Car, rows;
        requests: Request, with_cars;
        held: Held, with_cars;
    }
}

view! {
    /// What [`crate::deliver`] reads and writes, but for the endpoints.
    DeliverTables, delivering {
        progress: Progress, one;
        cars: Car, rows;
        large: Large, with_cars;
        requests: Request, with_cars;
        vcs: Vc, rows;
        communicators: Communicator, rows_read;
    }
}

view! {
    /// What tells whether a message to oneself goes to its receive at once.
    OwnTables, own {
        progress: Progress, one_read;
        cars: Car, rows_read;
        vcs: Vc, rows_read;
        endpoints: Endpoint, rows;
    }
}

view! {
    /// What a look touches: is there anything to do?
    LookTables, look {
        progress: Progress, one;
        inbound: Inbound, one;
        endpoints: Endpoint, rows;
    }
}

view! {
    /// What a look at endpoints touches that are expensive to look at.
    RareTables, rare {
        progress: Progress, one;
        cars: Car, rows_read;
        requests: Request, rows_read;
        vcs: Vc, rows_read;
        endpoints: Endpoint, rows;
    }
}

view! {
    /// What Post reads and writes.
    PostTables, post {
        progress: Progress, one;
        inbound: Inbound, one;
        notices: Notices, one;
        procs: ProcTable, one_read;
        communicators: Communicator, rows_read;
        cars: Car, rows;
        large: Large, with_cars;
        requests: Request, with_cars;
        held: Held, with_cars;
        vcs: Vc, rows;
        endpoints: Endpoint, rows;
    }
}

view! {
    /// What Match reads and writes.
    MatchTables, matching {
        progress: Progress, one;
        arrivals: Arrival, rows;
        cars: Car, rows;
        large: Large, with_cars;
        vcs: Vc, rows;
        communicators: Communicator, rows_read;
    }
}

view! {
    /// What SupplyBuffers reads and writes.
    SupplyTables, supply {
        progress: Progress, one;
        arrivals: Arrival, rows;
        buffers: Buffer, rows;
        supplies: Supply, rows;
        cars: Car, rows;
        large: Large, with_cars;
        vcs: Vc, rows;
        endpoints: Endpoint, rows;
    }
}

view! {
    /// What Transfer reads and writes.
    TransferTables, transfer {
        progress: Progress, one;
        arrivals: Arrival, rows;
        cars: Car, rows;
        large: Large, with_cars;
        buffers: Buffer, rows;
        vcs: Vc, rows;
        endpoints: Endpoint, rows;
    }
}

view! {
    /// What DrainCq reads and writes.
    DrainTables, drain {
        progress: Progress, one;
        endpoints: Endpoint, rows;
        arrivals: Arrival, rows;
    }
}

view! {
    /// What Complete reads and writes.
    CompleteTables, complete {
        progress: Progress, one;
        procs: ProcTable, one_read;
        notices: Notices, one;
        vcs: Vc, rows_read;
        cars: Car, rows;
        large: Large, with_cars;
        requests: Request, with_cars;
        held: Held, with_cars;
    }
}
