package remote

import (
	"slices"

	"github.com/brig-run/brig"
)

const (
	// maxValue is the size of the largest value that main may return, in bytes
	// of JSON: as here.
	maxValue = 8 * brig.MiB
	// maxSkipped is how many artifacts are named that did not come.
	maxSkipped = 100
)

// Bound holds an outcome to what one of this machine's is held to. What another
// service says of a program it may have from the program itself.
func Bound(o *brig.Outcome, p brig.Program) {
	limit := p.Limits.Output
	if limit <= 0 {
		limit = brig.DefaultBounds().Default.Output
	}
	for _, s := range []*brig.Output{&o.Stdout, &o.Stderr} {
		if kept := int64(len(s.Head) + len(s.Tail)); kept > limit || s.Total < kept {
			*s = Output(slices.Concat(s.Head, s.Tail), limit)
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
		if brig.ArtifactName(f.Path) && len(files) < brig.MaxArtifacts && len(f.Data) <= brig.MaxArtifactSize {
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
