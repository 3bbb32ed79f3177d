//! What a configuration file says, read once into what it means.
