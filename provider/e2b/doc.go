// Package e2b creates sandboxes in a cloud with E2B's protocol: E2B's own,
// another company's, or the E2B API of another Brig.
//
// It uploads the guest agent to each sandbox, and communicates with it over the
// standard streams of a process. E2B's own services inside a sandbox are not
// sufficient: they do not support messages of interpreters, ranges of files, or
// ports other than HTTP.
package e2b
