package dockerfile_test

import (
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/dockerfile"
)

// FuzzConvert verifies that a Dockerfile either converts, or fails with an error for its author. The
// steps have what their kinds need, and copy steps have their archives.
func FuzzConvert(f *testing.F) {
	for _, text := range []string{
		"FROM a\nRUN b\n", "FROM a\nRUN <<E\nb\nE\nCOPY <<F /c\n$D\nF\n", "ARG A=1\nFROM a:$A\nARG A\nENV B=${A:-x} C='$B'\n", "FROM a\nCOPY [\"x\", \"/y\"]\n",
		"FROM a\nCOPY --chown=u --chmod=755 x* /y/\nADD x z\n", "# escape=`\nFROM a\nRUN b `\n c\n", "FROM a\nSHELL [\"sh\"]\nENTRYPOINT [\"b\"]\nCMD c\nUSER u\nWORKDIR $P\n",
		"FROM a\nONBUILD RUN x\nHEALTHCHECK NONE\nSTOPSIGNAL 9\nVOLUME /v\nEXPOSE 1\n",
	} {
		f.Add(text)
	}
	folder, err := dockerfile.OpenFolder(f.TempDir(), "Dockerfile")
	if err != nil {
		f.Fatal(err)
	}
	defer folder.Close()
	f.Fuzz(func(t *testing.T, text string) {
		b, err := dockerfile.Convert(strings.NewReader(text), dockerfile.Options{Files: folder})
		if err != nil {
			if brig.KindOf(err) != brig.InvalidArgument {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		for _, s := range b.Spec.Steps {
			switch s.Kind {
			case brig.BuildEnv:
				if len(s.Env) == 0 {
					t.Errorf("%q: a step sets nothing", text)
				}
			case brig.BuildCopy:
				if b.Archives[s.Digest] == nil || s.Source == "" {
					t.Errorf("%q: the step %+v has no files", text, s)
				}
			}
		}
		if b.Spec.Image == "" {
			t.Errorf("%q: there is no image", text)
		}
	})
}
