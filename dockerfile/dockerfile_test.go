package dockerfile_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/dockerfile"
)

// convert converts a Dockerfile with the files in a folder. Names that end with "/" are directories, and
// a content that begins with "-> " is a link.
func convert(t *testing.T, text string, files map[string]string, args map[string]string) (*dockerfile.Build, error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		switch to, link := strings.CutPrefix(content, "-> "); {
		case err != nil:
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(file, 0o755)
		case link:
			err = os.Symlink(to, file)
		default:
			err = os.WriteFile(file, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	folder, err := dockerfile.OpenFolder(dir, filepath.Join(dir, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { folder.Close() })
	return dockerfile.Convert(strings.NewReader(text), dockerfile.Options{Files: folder, Args: args})
}

// describe returns the steps of a build as lines, with the files of copy steps.
func describe(t *testing.T, b *dockerfile.Build) (lines []string) {
	t.Helper()
	for _, s := range b.Spec.Steps {
		switch s.Kind {
		case brig.BuildRun:
			lines = append(lines, "run "+s.Command)
		case brig.BuildUser:
			lines = append(lines, "user "+s.User)
		case brig.BuildWorkdir:
			lines = append(lines, "workdir "+s.Dir)
		case brig.BuildEnv:
			lines = append(lines, fmt.Sprint("env ", s.Env))
		case brig.BuildCopy:
			line := fmt.Sprintf("copy %s %s %s", s.Source, s.Destination, strings.Join(list(t, b.Archives[s.Digest]), " "))
			if s.Owner+s.Mode != "" {
				line += " " + s.Owner + " " + s.Mode
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// list returns the names in an archive, with the contents of files and the targets of links.
func list(t *testing.T, a *dockerfile.Archive) (names []string) {
	t.Helper()
	var b bytes.Buffer
	if err := a.Write(&b); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, strings.TrimSuffix(h.Name+"="+string(content)+h.Linkname, "="))
	}
}

// Each instruction becomes the steps that a build needs.
func TestConvert(t *testing.T) {
	for _, c := range []struct {
		name, text string
		files      map[string]string
		args       map[string]string
		image      string
		steps      []string // without those at the beginning
		start      string
		warning    string
	}{
		{name: "defaults", text: "FROM alpine AS x\nRUN a && \\\n  b\nEXPOSE 80\nLABEL a=b\n", steps: []string{"run a &&   b", "user user", "workdir /home/user"}},
		{name: "forms of RUN", text: "FROM a\nUSER app\nWORKDIR /srv\nRUN [\"echo\", \"it's $A\"]\nSHELL [\"/bin/bash\", \"-c\"]\nRUN echo $0\n",
			steps: []string{"user app", "workdir /srv", `run echo 'it'"'"'s $A'`, "run /bin/bash -c 'echo $0'"}},
		{name: "here documents", text: "FROM a\nUSER u\nWORKDIR w\nRUN <<EOF\none\ntwo\nEOF\nRUN python3 <<E\nprint(1)\nE\n",
			steps: []string{"user u", "workdir w", "run one\ntwo\n", "run python3 <<E\nprint(1)\nE"}},
		{name: "flags of RUN", text: "FROM a\nUSER u\nWORKDIR w\nRUN --mount=type=cache,target=/c make\n", steps: []string{"user u", "workdir w", "run make"}, warning: "RUN: --mount has no effect"},
		{name: "variables", text: "FROM a\nUSER u\nENV A=1 B='$x' C=\"$A y\"\nENV A=2 PATH=/opt:$PATH\nENV D=${A}-$B E=${PATH} F=${NONE:-z}\nWORKDIR /w/$A/$HOME\n",
			steps: []string{"user u", "env map[C:${A} y]", `env map[A:1 B:\$x]`, "env map[PATH:/opt:${PATH}]", "env map[A:2]", "env map[E:${PATH}]", `env map[D:2-\$x F:z]`, "workdir /w/2/${HOME}"}},
		{name: "arguments", text: "ARG V=3\nARG W\nFROM python:$V-$W\nARG V\nARG X=x\nARG Y\nENV Z=1\nARG Z=2\nUSER $X\nWORKDIR /\n", args: map[string]string{"W": "slim", "Q": "1"}, image: "python:3-slim",
			steps: []string{"env map[V:3]", "env map[X:x]", "env map[Z:1]", "user x", "workdir /"}, warning: "the Dockerfile has no ARG Q"},
		{name: "a file", text: "FROM a\nUSER u\nWORKDIR /\nCOPY --chown=app:app --chmod=755 in/run.sh /usr/bin/run\n", files: map[string]string{"in/run.sh": "x"}, steps: []string{"user u", "workdir /", "copy run.sh /usr/bin/run run.sh=x app:app 755"}},
		{name: "a directory", text: "FROM a\nUSER u\nWORKDIR /\nCOPY in /srv\n", files: map[string]string{"in/a": "1", "in/sub/b": "2", "in/link": "-> sub/b"}, steps: []string{"user u", "workdir /", "copy . /srv a=1 link=sub/b sub/ sub/b=2"}},
		{name: "an empty directory", text: "FROM a\nUSER u\nWORKDIR /\nADD in /srv\n", files: map[string]string{"in/": ""}, steps: []string{"user u", "workdir /", "copy . /srv "}},
		{name: "several sources", text: "FROM a\nUSER u\nWORKDIR /\nCOPY *.json b /srv/\n", files: map[string]string{"a.json": "1", "c.json": "3", "b": "2"}, steps: []string{"user u", "workdir /", "copy . /srv/ a.json=1 b=2 c.json=3"}},
		{name: "ignored files", text: "FROM a\nUSER u\nWORKDIR /\nCOPY . /srv\n", files: map[string]string{".dockerignore": "# no\n*.md\n!keep.md\nnode_modules\n.dockerignore\n", "a.md": "", "keep.md": "k", "node_modules/x": "", "src/a": "1"},
			steps: []string{"user u", "workdir /", "copy . /srv keep.md=k src/ src/a=1"}},
		{name: "a here document as a file", text: "FROM a\nUSER u\nENV A=1\nWORKDIR /\nCOPY <<EOF /etc/conf\nA=$A\nEOF\n", steps: []string{"user u", "env map[A:1]", "workdir /", "copy EOF /etc/conf EOF=A=1\n"}},
		{name: "ADD of an archive", text: "FROM a\nUSER u\nWORKDIR /\nADD a.tar.gz /srv/\n", files: map[string]string{"a.tar.gz": "x"}, steps: []string{"user u", "workdir /", "copy a.tar.gz /srv/ a.tar.gz=x"}, warning: "ADD: a.tar.gz is copied, and not unpacked"},
		{name: "a start command", text: "FROM a\nUSER u\nWORKDIR /\nENTRYPOINT [\"node\", \"a b\"]\nCMD [\"x\"]\n", steps: []string{"user u", "workdir /"}, start: "node 'a b' x"},
		{name: "a start command in a shell", text: "FROM a\nUSER u\nWORKDIR /\nENTRYPOINT exec node $A\nCMD [\"x\"]\n", steps: []string{"user u", "workdir /"}, start: "exec node $A"},
		{name: "only CMD", text: "FROM a\nUSER u\nWORKDIR /\nCMD python3 -m http.server\n", steps: []string{"user u", "workdir /"}, start: "python3 -m http.server"},
		{name: "a mixed start command", text: "FROM a\nUSER u\nWORKDIR /\nENTRYPOINT [\"tini\"]\nCMD a b\n", steps: []string{"user u", "workdir /"}, start: "tini /bin/sh -c 'a b'"},
		{name: "others", text: "FROM a\nUSER u\nWORKDIR /\nHEALTHCHECK CMD true\n", steps: []string{"user u", "workdir /"}, warning: "HEALTHCHECK has no effect"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := convert(t, c.text, c.files, c.args)
			if err != nil {
				t.Fatal(err)
			}
			want := append([]string{"user root", "workdir /"}, c.steps...)
			if got := describe(t, b); !slices.Equal(got, want) {
				t.Errorf("the steps are\n%q, want\n%q", got, want)
			}
			if b.Spec.Start != c.start || strings.Join(b.Warnings, "\n") != c.warning || c.image != "" && b.Spec.Image != c.image {
				t.Errorf("the start command is %q, the image %q, the warnings are %q", b.Spec.Start, b.Spec.Image, b.Warnings)
			}
		})
	}
}

// What a build cannot do is an error with the line.
func TestConvertErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "no instructions",
		"RUN x\n":                          "no build stage",
		"FROM a\nFROM b\n":                 "line 2 of the Dockerfile: it is a second FROM",
		"FROM scratch\n":                   "scratch is not supported",
		"FROM $X\n":                        "the value of X is not known",
		"FROM a\nRUNN x\n":                 "line 2 of the Dockerfile: unknown instruction: RUNN",
		"FROM a\nCOPY --from=b /x /y\n":    "line 2 of the Dockerfile: COPY --from is not supported",
		"FROM a\n\nCOPY none /y\n":         `line 3 of the Dockerfile: COPY: no file matches "none"`,
		"FROM a\nCOPY ../../etc /y\n":      "no file matches",
		"FROM a\nCOPY ignored /y\n":        "no file matches",
		"FROM a\nCOPY out/passwd /y\n":     "no file matches",
		"FROM a\nCOPY a b /y\n":            "needs a directory",
		"FROM a\nCOPY --chmod=u+x a /y\n":  "is not supported",
		"FROM a\nCOPY a$X /y\n":            "the value of X is not known",
		"FROM a\nADD https://x.test/a /\n": "ADD of a URL is not supported",
		"FROM a\nUSER $X\n":                "the value of X is not known",
		"FROM a\nENV A=${B\n":              "line 2 of the Dockerfile",
	} {
		_, err := convert(t, text, map[string]string{"a": "", "b": "", "ignored": "", ".dockerignore": "ignored", "out": "-> /etc"}, nil)
		if brig.KindOf(err) != brig.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// A digest depends on names, modes, links and contents, and not on times.
func TestDigest(t *testing.T) {
	digest := func(files map[string]string) string {
		b, err := convert(t, "FROM a\nCOPY in /srv\n", files, nil)
		if err != nil {
			t.Fatal(err)
		}
		return b.Spec.Steps[2].Digest
	}
	first := digest(map[string]string{"in/a": "1", "in/l": "-> a"})
	if again := digest(map[string]string{"in/a": "1", "in/l": "-> a"}); again != first {
		t.Error("the same files have another digest")
	}
	for _, other := range []map[string]string{{"in/a": "2", "in/l": "-> a"}, {"in/b": "1", "in/l": "-> a"}, {"in/a": "1", "in/l": "-> b"}, {"in/a": "1"}} {
		if digest(other) == first {
			t.Errorf("%v has the same digest", other)
		}
	}
}
