package brig

import "time"

// AuditLine is an Event as stored in the audit log. The lines of a tenant form
// a hash chain: each contains the hash of the previous line, so that any
// modified, removed or inserted line is detectable.
type AuditLine struct {
	// Seq counts the lines of the tenant, from 1.
	Seq int64
	Event
	// Prev is the hash of the previous line; zero for the first.
	Prev [32]byte
	// Hash is the hash of all fields above; see package audit.
	Hash [32]byte
}

// AuditHead identifies the last line of a tenant's chain. A signed head that is
// stored elsewhere shows whether lines were removed from the end.
type AuditHead struct {
	Tenant string
	// Seq and Hash belong to the newest line; both are zero for an empty chain.
	Seq  int64
	Hash [32]byte
	At   time.Time
	// Key is the public key (Ed25519), and Signature is the signature of the head.
	// Both are empty if the server does not sign heads.
	Key, Signature []byte
}

// AuditQuery selects lines of the audit log.
type AuditQuery struct {
	// After selects the lines with a higher Seq.
	After int64
	// Since and Until select lines with Since <= time < Until.
	Since, Until time.Time
	// Sandbox selects lines about the sandbox with this ID or name.
	Sandbox string
	// Labels selects lines about sandboxes that have all of these labels.
	Labels map[string]string
	// Ops selects lines of operations. NewestFirst reverses the order, and After is then ignored.
	Ops         []string
	NewestFirst bool
	// Before selects the lines with a lower Seq. 0 does not filter.
	Before int64
	// Limit is the page's size, 1 to 1000. Default: 100.
	Limit int
}

// IsPartial reports whether q selects only some of the lines.
func (q AuditQuery) IsPartial() bool {
	return !q.Since.IsZero() || !q.Until.IsZero() || q.Sandbox != "" || len(q.Labels)+len(q.Ops) > 0 || q.Before != 0
}

// AuditPage is a part of the audit log.
type AuditPage struct {
	Lines []AuditLine
	// Next is the value of After for the next page; 0 on the last page.
	Next int64
	// Head is the head of the whole chain when the page was read.
	Head AuditHead
}

// Keys of an event's Detail. The key of a sandbox's label is DetailLabel
// followed by the label's name.
const (
	DetailName     = "name"      // name of the sandbox, the context or any other object
	DetailImage    = "image"     // digest of the image
	DetailLanguage = "language"  // language of the code
	DetailCode     = "code_hash" // "sha256:…" of a program or a cell
	DetailCommand  = "command"   // beginning of a command line
	DetailPath     = "path"      // path of a file
	DetailTo       = "to"        // new path of a file
	DetailSecrets  = "secrets"   // comma-separated names of secrets
	DetailVersion  = "version"   // version of a secret
	// DetailHosts and DetailFormerHosts are the hosts of a secret after and before a change,
	// separated by commas; "-" means that sandboxes receive the value. DetailWidens lists the
	// changed fields that allow the value to reach more destinations.
	DetailHosts       = "hosts"
	DetailFormerHosts = "former_hosts"
	DetailWidens      = "widens"
	DetailEgress      = "egress" // number of egress rules
	DetailExit        = "exit_code"
	DetailSignal      = "signal"
	DetailDuration    = "duration_ms"
	DetailVerdict     = "verdict" // timed_out, oom_killed, allowed, denied, or the reason for the end of a sandbox
	DetailHost        = "host"    // host of a request that was sent or denied
	DetailAddr        = "addr"
	DetailPort        = "port"
	DetailMethod      = "method"
	DetailLimit       = "limit" // the limit that programs reached
	DetailTotal       = "total" // the count since the sandbox began
	DetailWhat        = "what"  // the kind of the counted decisions
	// DetailCount is the number of decisions without a line of their own, or the number of copies
	// of a fork. In the line of a rejected call, it is the number of the caller's earlier
	// rejected calls that have no line. A line that only records this number has the details of
	// the last of these calls, which is included in the number.
	DetailCount   = "count"
	DetailChanges = "changes" // properties of copies that differ from those of the original
	DetailRule    = "rule"    // the index of the deciding rule; -1 means none
	DetailWhy     = "why"
	DetailSubject = "subject" // the person's issuer, "#" and subject
	DetailSession = "session" // ID of the session that the actor used
	DetailLabel   = "label."
	// DetailWorkspace is a workspace's name. DetailVersion is then its version.
	DetailWorkspace = "workspace"
	DetailUnchanged = "unchanged"  // "true" for a call that found the requested state
	DetailVolume    = "volume"     // name or ID of a volume, or comma-separated names of mounted ones
	DetailFilesOnly = "files_only" // "true" for a pause that does not keep the memory
	DetailOrigin    = "origin"     // ID of the sandbox that the sandbox is a copy of
	DetailProvider  = "provider"   // the provider that runs the sandbox, or that was changed
	DetailRoute     = "route"      // the reason for the choice of the provider
	// DetailPruned and DetailPrunedHash are the number and the hash of the last
	// line that was removed from the beginning of the chain.
	DetailPruned     = "pruned"
	DetailPrunedHash = "pruned_hash"
)

// RevealedOp is the Op of the line that records the removal of a secret's
// hosts. Sandboxes receive the value of such a secret directly.
const RevealedOp = "secret.reveal"

// RotatedOp is the Op of the line that records a new encryption key in the data
// folder.
const RotatedOp = "key.rotate"

// Ops of the lines that record denials by a sandbox's kernel: processes beyond
// the limit, and connections without a route.
const (
	ForkOp    = "limit.processes"
	NoRouteOp = "egress.unreachable"
)

// PrunedOp is the Op of the line that records the removal of a chain's
// beginning.
const PrunedOp = "audit.prune"
