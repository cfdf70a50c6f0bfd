package brig

import "time"

// AuditLine is an Event as the audit log keeps it. The lines of a tenant are a
// chain: each has the hash of the one before, so that none can be changed,
// taken out or put in without its being seen.
type AuditLine struct {
	// Seq counts the lines of the tenant, from 1.
	Seq int64
	Event
	// Prev is the hash of the line before, zero for the first.
	Prev [32]byte
	// Hash is that of everything above; see package audit.
	Hash [32]byte
}

// AuditHead says where a tenant's chain stands. One that was signed and taken
// elsewhere shows whether lines were taken away at the end.
type AuditHead struct {
	Tenant string
	// Seq and Hash are those of the newest line; 0 for a chain without any.
	Seq  int64
	Hash [32]byte
	At   time.Time
	// Key is the public key (Ed25519) and Signature what it signed; empty
	// where nobody signs.
	Key, Signature []byte
}

// AuditQuery selects lines of the audit log.
type AuditQuery struct {
	// After continues behind the line of that number.
	After int64
	// Since and Until keep only what was between them, Until not included.
	Since, Until time.Time
	// Sandbox keeps only what is about the sandbox of that id or name.
	Sandbox string
	// Labels must all be those of the sandbox.
	Labels map[string]string
	// Limit is the page's size, 1 to 1000. Default 100.
	Limit int
}

// Partial reports whether q leaves out lines.
func (q AuditQuery) Partial() bool {
	return !q.Since.IsZero() || !q.Until.IsZero() || q.Sandbox != "" || len(q.Labels) > 0
}

// AuditPage is a part of the audit log.
type AuditPage struct {
	Lines []AuditLine
	// Next is what After is for the next page, 0 on the last.
	Next int64
	// Head is where the whole chain stood when the page was read.
	Head AuditHead
}

// What an event's Detail may have. Labels of the sandbox are there as
// DetailLabel and their key.
const (
	DetailName     = "name"      // of the sandbox, the context or whatever else was named
	DetailImage    = "image"     // digest
	DetailLanguage = "language"  // of code
	DetailCode     = "code_hash" // "sha256:…" of a program or a cell
	DetailCommand  = "command"   // the beginning of a command line
	DetailPath     = "path"      // of a file
	DetailTo       = "to"        // a file's new path
	DetailSecrets  = "secrets"   // names, with "," between
	DetailVersion  = "version"   // of a secret
	DetailEgress   = "egress"    // how many rules
	DetailExit     = "exit_code"
	DetailSignal   = "signal"
	DetailDuration = "duration_ms"
	DetailVerdict  = "verdict" // timed_out, oom_killed; allowed or denied; why a sandbox ended
	DetailHost     = "host"    // of a request that left, or did not
	DetailAddr     = "addr"
	DetailPort     = "port"
	DetailMethod   = "method"
	DetailRule     = "rule" // which rule decided, from 0; -1 is none
	DetailWhy      = "why"
	DetailSubject  = "subject" // of a person: the issuer, "#", and whom it means
	DetailSession  = "session" // id of the one by which somebody acted
	DetailLabel    = "label."
	// DetailWorkspace is a workspace's name; DetailVersion its version then.
	DetailWorkspace = "workspace"
	DetailProvider  = "provider" // where it is made, or which one was changed
	DetailRoute     = "route"    // why there
	// DetailPruned and DetailPrunedHash are of the line that says up to which
	// line, with which hash, the chain's beginning was removed.
	DetailPruned     = "pruned"
	DetailPrunedHash = "pruned_hash"
)

// RevealedOp is the Op of the line about a secret that lost its hosts: sandboxes
// see its value from then on.
const RevealedOp = "secret.reveal"

// PrunedOp is the Op of the line about the removal of a chain's beginning.
const PrunedOp = "audit.prune"
