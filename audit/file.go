package audit

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/brig-run/brig"
)

// version identifies the export format.
const version = 1

// heading is the first line of an export.
type heading struct {
	Version int               `json:"brig_audit"`
	Begins  int64             `json:"begins"` // the number of the first record
	After   int64             `json:"after,omitempty"`
	Since   time.Time         `json:"since,omitzero"`
	Until   time.Time         `json:"until,omitzero"`
	Sandbox string            `json:"sandbox,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
}

func (h heading) isPartial() bool {
	return h.After != 0 || !h.Since.IsZero() || !h.Until.IsZero() || h.Sandbox != "" || len(h.Labels) > 0
}

// ending is the last line of an export.
type ending struct {
	End  int  `json:"lines"`
	Head Head `json:"head"`
}

// Writer writes an export.
type Writer struct {
	to *json.Encoder
	n  int
}

// NewWriter starts an export of the records that q selects. begins is the
// number of the first record.
func NewWriter(w io.Writer, q brig.AuditQuery, begins int64) (*Writer, error) {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return &Writer{to: e}, e.Encode(heading{version, begins, q.After, q.Since, q.Until, q.Sandbox, q.Labels})
}

// WriteLine writes a record.
func (w *Writer) WriteLine(l brig.AuditLine) error {
	w.n++
	return w.to.Encode(FromLine(l))
}

// WriteEnd writes the last line of the export.
func (w *Writer) WriteEnd(h brig.AuditHead) error { return w.to.Encode(ending{w.n, FromHead(h)}) }

// Report is the result of a verification.
type Report struct {
	Tenant  string
	Lines   int
	First   int64 // number of the first line, 0 if there is none
	Last    int64
	Partial bool // a query omitted lines, which are unverified
	Signed  bool
}

// maxLine bounds a line of an export, in bytes.
const maxLine = 4 << 20

// VerifyExport verifies an export, and returns the first invalid record in the
// error. If key is not nil, the last line must be signed with it.
func VerifyExport(r io.Reader, key ed25519.PublicKey) (*Report, error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), maxLine)
	var (
		head heading
		v    Verifier
		rep  Report
		end  *ending
	)
	if !sc.Scan() || decodeStrict(sc.Bytes(), &head) != nil || head.Version != version {
		return nil, errors.Join(brig.Errorf(brig.InvalidArgument, "this is not an export of an audit log").
			WithHint("make one with brig audit export"), sc.Err())
	}
	v.Partial, v.Begins = head.isPartial(), head.Begins
	for sc.Scan() {
		if end != nil {
			return nil, &InvalidRecord{v.position + 1, v.last.Seq + 1, "it stands behind the end"}
		}
		if bytes.HasPrefix(sc.Bytes(), []byte(`{"lines":`)) {
			end = new(ending)
			if err := decodeStrict(sc.Bytes(), end); err != nil {
				return nil, v.unreadableError(err)
			}
			continue
		}
		var form Line
		err := decodeStrict(sc.Bytes(), &form)
		l, failure := form.Domain()
		if err = errors.Join(err, failure); err != nil {
			return nil, v.unreadableError(err)
		}
		if rep.First == 0 {
			rep.First = l.Seq
		}
		if err := v.Add(l); err != nil {
			return nil, err
		}
	}
	if err := sc.Err(); err != nil {
		return nil, v.unreadableError(err)
	}
	if end == nil {
		if err := v.End(nil); err != nil {
			return nil, err
		}
		return nil, &InvalidRecord{v.position, v.last.Seq + 1, "it is missing, with the end of the export"}
	}
	return &rep, v.finish(&rep, *end, key)
}

// finish verifies the last line of an export.
func (v *Verifier) finish(rep *Report, end ending, key ed25519.PublicKey) error {
	n := v.position
	h, err := end.Head.Domain()
	if err != nil {
		return v.unreadableError(err)
	}
	if err := v.End(&h); err != nil {
		return err
	}
	if n != end.End {
		return &InvalidRecord{n + 1, v.last.Seq + 1, fmt.Sprintf("there are %d records and there were %d", n, end.End)}
	}
	if n > 0 && h.Tenant != v.last.Tenant {
		return &InvalidRecord{n + 1, h.Seq, "the end is from another tenant's log"}
	}
	rep.Tenant, rep.Lines, rep.Last, rep.Partial, rep.Signed = h.Tenant, n, v.last.Seq, v.Partial, len(h.Signature) > 0
	return CheckHead(h, key)
}

func (v *Verifier) unreadableError(err error) error {
	return &InvalidRecord{v.position + 1, v.last.Seq + 1, "it cannot be read: " + err.Error()}
}

// decodeStrict decodes one line, which must be byte for byte as Writer encodes it,
// without additional, duplicate or reordered fields. A line that two readers
// could decode differently proves nothing.
func decodeStrict[T any](b []byte, to *T) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	var again bytes.Buffer
	e := json.NewEncoder(&again)
	e.SetEscapeHTML(false)
	if err := e.Encode(to); err != nil {
		return err
	}
	if !bytes.Equal(bytes.TrimSuffix(again.Bytes(), []byte("\n")), b) {
		return errors.New("it is not as an export writes it")
	}
	return nil
}
