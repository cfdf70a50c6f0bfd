package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/brig-run/brig"
)

const (
	// maxValue is the maximum size of main's return value in bytes of JSON, the
	// same as for local sandboxes.
	maxValue = 8 * brig.MiB
	// maxSkipped is the maximum number of skipped artifacts in an outcome.
	maxSkipped = 100
)

// LimitOutcome applies the limits of a local outcome to a remote one, because the
// program may control the data that the remote service returns.
func LimitOutcome(o *brig.Outcome, p brig.Program) {
	limit := p.Limits.Output
	if limit <= 0 {
		limit = brig.DefaultLimitRange().Default.Output
	}
	for _, s := range []*brig.Output{&o.Stdout, &o.Stderr} {
		if kept := int64(len(s.Head) + len(s.Tail)); kept > limit || s.Total < kept {
			*s = NewOutput(slices.Concat(s.Head, s.Tail), limit)
		}
	}
	if len(o.Value) > maxValue {
		o.Value, o.ExitCode = nil, max(o.ExitCode, 1)
		o.Error = &brig.ProgramError{
			Name: "ValueTooLarge", Message: "main returned more than " + brig.FormatBytes(maxValue) + " of JSON",
			Hint: "write large results to files in artifacts/",
		}
	}
	if e := o.Error; e != nil {
		e.Name, e.Message, e.Hint = brig.Clip(e.Name, 200), brig.Clip(e.Message, 4000), brig.Clip(e.Hint, 1000)
		e.Traceback = brig.Clip(e.Traceback, maxTraceback)
	}
	var files []brig.File
	for _, f := range o.Artifacts {
		if brig.IsArtifactName(f.Path) && len(files) < brig.MaxArtifacts && len(f.Data) <= brig.MaxArtifactSize {
			files = append(files, f)
		} else {
			o.Skipped = append(o.Skipped, f.Path)
		}
	}
	o.Artifacts = files
	o.Skipped = o.Skipped[:min(len(o.Skipped), maxSkipped)]
	for i, name := range o.Skipped {
		o.Skipped[i] = brig.Clip(name, 255)
	}
}

// DecodeList decodes a JSON list of at most the given number of items. It
// decodes null as an empty list, and stops at the first excess item. A limit
// on the bytes would not suffice, because a list of empty objects takes many
// times its encoded size in memory.
func DecodeList[T any](b []byte, maxItems int) ([]T, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	t, err := d.Token()
	if err == nil && t == nil {
		return nil, nil
	}
	if err != nil || t != json.Delim('[') {
		return nil, errors.Join(err, errors.New("it is not a list"))
	}
	var list []T
	for d.More() {
		if len(list) == maxItems {
			return nil, fmt.Errorf("a list has more than %d items", maxItems)
		}
		var item T
		if err := d.Decode(&item); err != nil {
			return nil, err
		}
		list = append(list, item)
	}
	_, err = d.Token()
	return list, err
}
