package audit

import (
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/brig-run/brig"
)

// InvalidRecord is the first invalid record of a log.
type InvalidRecord struct {
	Position int   // position in the input, from 1
	Seq      int64 // the number that the record should have
	Reason   string
}

// Error implements error.
func (b *InvalidRecord) Error() string { return fmt.Sprintf("record %d: %s", b.Seq, b.Reason) }

// Verifier verifies the lines of one tenant in the order of the log.
type Verifier struct {
	// Partial means that lines may be missing, as in the result of a query.
	// Then only the existing lines, their order, and the links between adjacent
	// lines are verified.
	Partial bool
	// Begins is the number of the first line. 0 means 1. Earlier lines were
	// pruned, and a line must record this.
	Begins int64

	position          int
	first, last       brig.AuditLine
	wantPrev          [32]byte // the Prev that a valid line in the position of last must have
	pruned            brig.AuditLine
	contradictingLine *brig.AuditLine // contradicts last, so one of the two is invalid
}

// Add verifies the next line. After an error, later results are meaningless.
func (v *Verifier) Add(l brig.AuditLine) error {
	v.position++
	want := v.last.Seq + 1
	if v.contradictingLine != nil {
		return v.resolveDoubt(l.Prev)
	}
	switch {
	case v.position > 1:
	case v.Partial:
		want = l.Seq
	case v.Begins > 1:
		want = v.Begins
	}
	switch {
	case HashLine(l) != l.Hash:
		return v.recordError(want, "it was changed: its hash does not match its content")
	case v.position > 1 && l.Tenant != v.last.Tenant:
		return v.recordError(want, "it is from another tenant's log")
	case v.Partial && l.Seq > want:
	case l.Seq > want:
		return v.recordError(want, fmt.Sprintf("it is missing: record %d is in its place", l.Seq))
	case v.position > 1 && l.Seq == v.last.Seq && l.Hash != v.last.Hash:
		v.contradictingLine = &l // both hashes are valid; the next line determines which line is invalid
		return nil
	case l.Seq < want:
		return v.recordError(want, fmt.Sprintf("record %d is in its place, repeated or out of order", l.Seq))
	case want == 1 && l.Prev != [32]byte{}:
		return v.recordError(1, "it is not the first of a log")
	case v.position == 1:
		v.first = l
	case l.Prev != v.last.Hash:
		v.contradictingLine = &l
		return nil
	}
	v.wantPrev, v.last = l.Prev, l
	if l.Op == brig.PrunedOp {
		v.pruned = l
	}
	return nil
}

// resolveDoubt determines which of last and contradiction is invalid. next is
// the hash of the preceding record according to the record that follows.
func (v *Verifier) resolveDoubt(next [32]byte) error {
	d := *v.contradictingLine
	v.contradictingLine = nil
	v.position-- // the position of the contradiction
	if next == d.Hash && (d.Seq == v.last.Seq+1 || d.Prev == v.wantPrev) {
		v.position--
		return v.recordError(v.last.Seq, "it was changed or inserted: the next record follows another one")
	}
	return v.recordError(v.last.Seq+1, "it was changed or inserted: it does not follow the record before it")
}

func (v *Verifier) recordError(seq int64, reason string) error {
	return &InvalidRecord{v.position, seq, reason}
}

// Lines returns the number of added lines.
func (v *Verifier) Lines() int { return v.position }

// End verifies the beginning and the end of the log: a missing beginning must
// have been pruned, and the last line must match head, if head is not nil.
func (v *Verifier) End(head *brig.AuditHead) error {
	v.position++
	if v.contradictingLine != nil {
		var next [32]byte
		if head != nil {
			next = head.Hash
		}
		return v.resolveDoubt(next)
	}
	if v.Partial {
		return nil
	}
	if err := v.verifyBeginning(); err != nil || head == nil {
		return err
	}
	switch {
	case head.Seq > v.last.Seq:
		return v.recordError(v.last.Seq+1, fmt.Sprintf("it is missing, with all records up to %d, the last one", head.Seq))
	case head.Seq < v.last.Seq:
		v.position -= int(v.last.Seq - head.Seq)
		return v.recordError(head.Seq+1, fmt.Sprintf("it was inserted: record %d was the last one", head.Seq))
	case head.Hash != v.last.Hash:
		v.position--
		return v.recordError(head.Seq, "it was changed: it differs from the signed last record")
	}
	return nil
}

// verifyBeginning verifies that missing lines at the beginning were pruned.
func (v *Verifier) verifyBeginning() error {
	if v.first.Seq <= 1 {
		return nil
	}
	lastPruned, err := strconv.ParseInt(v.pruned.Detail[brig.DetailPruned], 10, 64)
	hash := hex.EncodeToString(v.first.Prev[:])
	if err == nil && lastPruned == v.first.Seq-1 && v.pruned.Detail[brig.DetailPrunedHash] == hash {
		return nil
	}
	v.position = 1
	if err != nil || lastPruned >= v.first.Seq {
		lastPruned = 0
	}
	return v.recordError(lastPruned+1, fmt.Sprintf("it is missing: the log begins with record %d, and no record states that earlier ones were pruned", v.first.Seq))
}
