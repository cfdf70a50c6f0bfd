package audit

import (
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/brig-run/brig"
)

// Bad is the first record of a log that is not what was written.
type Bad struct {
	Place int   // in what was read, from 1
	Seq   int64 // the number that the record there ought to have
	Why   string
}

// Error implements error.
func (b *Bad) Error() string { return fmt.Sprintf("record %d: %s", b.Seq, b.Why) }

// Verifier checks the lines of one tenant in the order in which they are kept.
type Verifier struct {
	// Partial says that lines may have been left out, as by a query. Then only
	// what is there is checked: each line, their order, and neighbours.
	Partial bool
	// Begins is the number of the first line; 0 is 1. What was before was
	// pruned, and a line must say so.
	Begins int64

	place       int
	first, last brig.AuditLine
	before      [32]byte // Prev that a line in last's place must have
	pruned      brig.AuditLine
	doubt       *brig.AuditLine // contradicts last: one of the two is wrong
}

// Add checks the next line. After an error the rest means nothing.
func (v *Verifier) Add(l brig.AuditLine) error {
	v.place++
	want := v.last.Seq + 1
	if v.doubt != nil {
		return v.judge(l.Prev)
	}
	switch {
	case v.place > 1:
	case v.Partial:
		want = l.Seq
	case v.Begins > 1:
		want = v.Begins
	}
	switch {
	case Sum(l) != l.Hash:
		return v.bad(want, "it was changed: its hash is not that of what it says")
	case v.place > 1 && l.Tenant != v.last.Tenant:
		return v.bad(want, "it is from another tenant's log")
	case v.Partial && l.Seq > want:
	case l.Seq > want:
		return v.bad(want, fmt.Sprintf("it is missing: record %d is in its place", l.Seq))
	case v.place > 1 && l.Seq == v.last.Seq && l.Hash != v.last.Hash:
		v.doubt = &l // both agree with themselves: whom the next one follows is right
		return nil
	case l.Seq < want:
		return v.bad(want, fmt.Sprintf("record %d is in its place, a second time or out of order", l.Seq))
	case want == 1 && l.Prev != [32]byte{}:
		return v.bad(1, "it is not the first of a log")
	case v.place == 1:
		v.first = l
	case l.Prev != v.last.Hash:
		v.doubt = &l
		return nil
	}
	v.before, v.last = l.Prev, l
	if l.Op == brig.PrunedOp {
		v.pruned = l
	}
	return nil
}

// judge decides a doubt: next is what a later record says was before it.
func (v *Verifier) judge(next [32]byte) error {
	d := *v.doubt
	v.doubt = nil
	v.place-- // doubt's place
	if next == d.Hash && (d.Seq == v.last.Seq+1 || d.Prev == v.before) {
		v.place--
		return v.bad(v.last.Seq, "it was changed or put in: what comes behind it was written behind another")
	}
	return v.bad(v.last.Seq+1, "it was changed or put in: it was not written behind the record before")
}

func (v *Verifier) bad(seq int64, why string) error { return &Bad{v.place, seq, why} }

// Lines is how many were added.
func (v *Verifier) Lines() int { return v.place }

// End checks how the log begins and ends: a beginning that is not there must
// have been pruned, and the end must be head's, if there is one.
func (v *Verifier) End(head *brig.AuditHead) error {
	v.place++
	if v.doubt != nil {
		var next [32]byte
		if head != nil {
			next = head.Hash
		}
		return v.judge(next)
	}
	if v.Partial {
		return nil
	}
	if err := v.begins(); err != nil || head == nil {
		return err
	}
	switch {
	case head.Seq > v.last.Seq:
		return v.bad(v.last.Seq+1, fmt.Sprintf("it is missing, with all up to record %d, which was the last", head.Seq))
	case head.Seq < v.last.Seq:
		v.place -= int(v.last.Seq - head.Seq)
		return v.bad(head.Seq+1, fmt.Sprintf("it was put in: record %d was the last", head.Seq))
	case head.Hash != v.last.Hash:
		v.place--
		return v.bad(head.Seq, "it was changed: it is not the one that was the last")
	}
	return nil
}

// begins checks that what is not there was pruned.
func (v *Verifier) begins() error {
	if v.first.Seq <= 1 {
		return nil
	}
	upTo, err := strconv.ParseInt(v.pruned.Detail[brig.DetailPruned], 10, 64)
	hash := hex.EncodeToString(v.first.Prev[:])
	if err == nil && upTo == v.first.Seq-1 && v.pruned.Detail[brig.DetailPrunedHash] == hash {
		return nil
	}
	v.place = 1
	if err != nil || upTo >= v.first.Seq {
		upTo = 0
	}
	return v.bad(upTo+1, fmt.Sprintf("it is missing: the log begins with record %d, and nothing says that what was before was pruned", v.first.Seq))
}
