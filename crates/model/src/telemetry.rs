//! Metrics: each field of a snapshot is declared once, with its name, kind, unit and help.
//!
//! The declaration feeds the recorder of the `metrics` facade, JSON, the text format of Prometheus, the metrics of an
//! experiment and the reference page.
//!
//! ```
//! use stockade_model::snapshot;
//!
//! snapshot! {
//!     /// A door.
//!     pub struct Door {
//!         /// Times that it was opened.
//!         opened: u64 = counter "door_opened_total",
//!         /// Alarms by fire.
//!         fires: u64 = counter "door_alarms_total" { cause = "fire" },
//!         /// Alarms by burglars.
//!         burglars: u64 = counter "door_alarms_total" { cause = "burglar" },
//!         /// Width, if it is known.
//!         width_bytes: Option<u64> = gauge "door_bytes" in Bytes,
//!     }
//! }
//! let front = Door { opened: 2, ..Door::default() };
//! let values = Door::METRICS.iter().map(|metric| (metric.field, (metric.read)(&front)));
//! assert_eq!(values.collect::<Vec<_>>(), [
//!     ("opened", Some(2.0)),
//!     ("fires", Some(0.0)),
//!     ("burglars", Some(0.0)),
//!     ("width_bytes", None),
//! ]);
//! ```

/// How a metric changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It is a value of now.
    Gauge,
}

/// The unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricUnit {
    /// A plain number.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

/// The declaration of one field of a snapshot `S`.
#[derive(Debug)]
pub struct Declaration<S: 'static> {
    /// Name of the field.
    pub field: &'static str,
    /// Name of the family in Prometheus. Fields that differ by a label share a family, and are adjacent.
    pub family: &'static str,
    /// The label that distinguishes the field within its family.
    pub label: Option<(&'static str, &'static str)>,
    /// How it changes.
    pub kind: MetricKind,
    /// Its unit.
    pub unit: MetricUnit,
    /// The meaning of the metric, in one line.
    pub help: &'static str,
    /// Its value; `None`: it has none now.
    pub read: fn(&S) -> Option<f64>,
}

impl<S> Clone for Declaration<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Declaration<S> {}

/// A field of a snapshot.
pub trait MetricValue {
    /// As a number; `None`: it has no value now.
    fn number(&self) -> Option<f64>;
}

impl MetricValue for u64 {
    fn number(&self) -> Option<f64> {
        Some(*self as f64)
    }
}

impl MetricValue for f64 {
    fn number(&self) -> Option<f64> {
        Some(*self)
    }
}

impl MetricValue for bool {
    fn number(&self) -> Option<f64> {
        Some(f64::from(u8::from(*self)))
    }
}

impl<T: MetricValue> MetricValue for Option<T> {
    fn number(&self) -> Option<f64> {
        self.as_ref()?.number()
    }
}

/// Declares the metrics of a snapshot: a struct, and `METRICS` with a [`Declaration`] for each field that has a metric. The help
/// is the doc comment. Fields without a metric come last, after `+`.
#[macro_export]
macro_rules! snapshot {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $name:ident {
            $(
                $(#[doc = $help:literal])+
                $field:ident: $type:ty = $kind:ident $family:literal $({ $label:ident = $value:literal })? $(in $unit:ident)?,
            )*
            $(+ $($(#[$plain_meta:meta])* $plain:ident: $plain_type:ty,)*)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        $visibility struct $name {
            $($(#[doc = $help])+ pub $field: $type,)*
            $($($(#[$plain_meta])* pub $plain: $plain_type,)*)?
        }

        impl $name {
            /// Every metric, in the order of the fields.
            pub const METRICS: &'static [$crate::telemetry::Declaration<Self>] = &[$(
                $crate::telemetry::Declaration {
                    field: stringify!($field),
                    family: $family,
                    label: $crate::snapshot!(@label $($label $value)?),
                    kind: $crate::snapshot!(@kind $kind),
                    unit: $crate::snapshot!(@unit $($unit)?),
                    help: concat!($($help),+),
                    read: |snapshot| $crate::telemetry::MetricValue::number(&snapshot.$field),
                },
            )*];
        }
    };
    (@label) => { None };
    (@label $label:ident $value:literal) => { Some((stringify!($label), $value)) };
    (@kind counter) => { $crate::telemetry::MetricKind::Counter };
    (@kind gauge) => { $crate::telemetry::MetricKind::Gauge };
    (@unit) => { $crate::telemetry::MetricUnit::Count };
    (@unit $unit:ident) => { $crate::telemetry::MetricUnit::$unit };
}
