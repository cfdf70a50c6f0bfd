package builder

import (
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

func TestParseName(t *testing.T) {
	const uuid = "0b6ba9f2-9d2f-4f44-8fc9-000000000000"
	for _, c := range []struct{ ref, name, tag string }{
		{"web", "web", ""}, {"web:v1", "web", "v1"}, {" Web_2:V1.0-rc ", "web_2", "V1.0-rc"},
	} {
		name, tag, err := ParseName(c.ref)
		if err != nil || name != c.name || tag != c.tag {
			t.Errorf("%q: %q, %q, %v", c.ref, name, tag, err)
		}
	}
	for _, ref := range []string{"", ":v1", "web:", "a b", "a/b", "web:a:b", "web:" + uuid, strings.Repeat("a", 64), "web:" + strings.Repeat("a", 129)} {
		if _, _, err := ParseName(ref); brig.KindOf(err) != brig.InvalidArgument {
			t.Errorf("%q: %v", ref, err)
		}
	}
}

func TestCheckTags(t *testing.T) {
	for _, c := range []struct {
		tag  string
		more []string
		want string
	}{
		{"", nil, "default"}, {"v1", nil, "v1"}, {"v1", []string{"a", "v1", "a"}, "v1 a"}, {"", []string{"b"}, "b"},
	} {
		got, err := checkTags(c.tag, c.more)
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%q and %q: %q, %v", c.tag, c.more, got, err)
		}
	}
	for _, more := range [][]string{{""}, {"a b"}, {":x"}, {"x:"}} {
		if _, err := checkTags("v1", more); err == nil {
			t.Errorf("%q are accepted", more)
		}
	}
}

// The source of a COPY never leaves the archive, and a pattern stands for the directory before it.
func TestSource(t *testing.T) {
	for _, c := range []struct{ src, clean, kind string }{
		{"a.txt", "./a.txt", "file"}, {"./dir/", "./dir", "file"}, {".", "./.", "tree"}, {"a/../b", "./b", "file"},
		{"dir/*.txt", "./dir", "tree"}, {"*.txt", "./.", "tree"}, {"a/b/**/c", "./a/b", "tree"}, {"a/x[12]", "./a", "tree"},
		{"/etc/passwd", "", ""}, {"..", "", ""}, {"../a", "", ""}, {"a/../../b", "", ""}, {"../*.txt", "", ""}, {"/*", "", ""},
	} {
		if clean, kind := source(c.src); clean != c.clean || kind != c.kind {
			t.Errorf("%q: %q, %q", c.src, clean, kind)
		}
	}
}

func TestPlanIsChecked(t *testing.T) {
	hash := strings.Repeat("a", 64)
	good := Plan{Image: "base", Steps: []Step{
		{Kind: Run, Args: []string{"true"}}, {Kind: Run, Args: []string{"true", "root"}}, {Kind: Env, Args: []string{"A", "1", "B", "2"}},
		{Kind: Copy, Args: []string{"a", "/b", "", ""}, Files: hash}, {Kind: Copy, Args: []string{"a", "/b", "user:user", "0755"}, Files: hash},
		{Kind: Workdir, Args: []string{"/app"}}, {Kind: User, Args: []string{"x"}},
	}}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", maxText+1)
	for _, c := range []struct {
		p     Plan
		field string
	}{
		{Plan{}, "fromImage"}, {Plan{Image: "a", Template: "b"}, "fromImage"}, {Plan{Image: "a", Start: long}, "startCmd"}, {Plan{Image: "a", Ready: long}, "readyCmd"},
		{Plan{Image: "a", Steps: make([]Step, maxSteps+1)}, "steps"},
		{Plan{Image: "a", Steps: []Step{{Kind: "ADD"}}}, "steps[0].type"},
		{Plan{Image: "a", Steps: []Step{good.Steps[0], {Kind: Run}}}, "steps[1].args"},
		{Plan{Image: "a", Steps: []Step{{Kind: Run, Args: []string{long}}}}, "steps[0].args"},
		{Plan{Image: "a", Steps: []Step{{Kind: Run, Args: []string{"a\x00b"}}}}, "steps[0].args"},
		{Plan{Image: "a", Steps: []Step{{Kind: Env, Args: []string{"A"}}}}, "steps[0].args"},
		{Plan{Image: "a", Steps: []Step{{Kind: Copy, Args: []string{"a", "b"}, Files: "../x"}}}, "steps[0].filesHash"},
		{Plan{Image: "a", Steps: []Step{{Kind: Copy, Args: []string{"a", "b", "", "u+x"}, Files: hash}}}, "steps[0].args"},
		{Plan{Image: "a", Steps: []Step{{Kind: Copy, Args: []string{"a", "b", "$(id)"}, Files: hash}}}, "steps[0].args"},
	} {
		err := c.p.check()
		if e := brig.AsError(err); err == nil || e.Field != c.field {
			t.Errorf("want an error for %s: %v (field %q)", c.field, err, e.Field)
		}
	}
}
