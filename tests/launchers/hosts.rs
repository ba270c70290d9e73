//! Several hosts: network, mount, UTS and IPC namespaces of one machine, joined by a bridge.
