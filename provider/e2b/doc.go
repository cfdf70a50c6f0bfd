// Package e2b makes sandboxes in a cloud that speaks E2B's protocol: E2B's own,
// another company's, or another Brig's door.
//
// The guest agent is brought into each of them by an upload, and is spoken to
// over the standard streams of a process. What E2B's own services inside a
// sandbox can do is less: no interpreter's messages, no ranges of files, no
// ports but for HTTP.
package e2b
