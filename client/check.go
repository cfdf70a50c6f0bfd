package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/brig-run/brig"
)

// encode encodes a request. A value that JSON cannot represent is reported as an invalid argument.
func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err == nil {
		return b, nil
	}
	e := brig.Errorf(brig.InvalidArgument, "the request cannot be written as JSON").Because(err)
	if _, number := errors.AsType[*json.UnsupportedValueError](err); number {
		e.Field = "limits.cpus" // the only number that may be NaN or infinite
		e.Hint = "give a number, for example 0.5"
	}
	return nil, e
}

// checker finds text that JSON encoding would silently change.
type checker struct{ err error }

func (c *checker) text(field, s string) {
	if c.err == nil && !utf8.ValidString(s) {
		c.err = brig.InvalidField(field, "is not UTF-8").WithHint("send bytes as a file or as standard input")
	}
}

func (c *checker) list(field string, list []string) {
	for i, s := range list {
		c.text(fmt.Sprintf("%s[%d]", field, i), s)
	}
}

func (c *checker) dict(field string, m map[string]string) {
	for k, v := range m {
		c.text(field, k)
		c.text(field+"."+k, v)
	}
}

func checkCommand(cmd brig.Command) error {
	var c checker
	c.list("command", cmd.Argv)
	c.text("shell", cmd.Shell)
	c.dict("env", cmd.Env)
	c.text("cwd", cmd.Dir)
	c.text("user", cmd.User)
	return c.err
}

func checkSpec(s brig.Spec) error {
	var c checker
	c.text("name", s.Name)
	c.text("template", s.Template)
	c.text("default_user", s.User)
	c.text("default_cwd", s.Dir)
	c.text("image", s.Image)
	c.dict("env", s.Env)
	c.dict("labels", s.Labels)
	if c.err == nil && s.Command != nil {
		c.err = checkCommand(*s.Command)
	}
	return c.err
}

func checkProgram(p brig.Program) error {
	var c checker
	c.text("language", string(p.Language))
	c.text("code", p.Code)
	c.list("command", p.Command)
	c.dict("env", p.Env)
	c.dict("labels", p.Labels)
	c.text("name", p.SandboxName)
	c.text("image", p.Image)
	c.text("user", p.User)
	for i, f := range p.Files {
		c.text(fmt.Sprintf("files[%d].path", i), f.Path)
	}
	if c.err == nil && p.Arguments != nil && !json.Valid(p.Arguments) {
		c.err = brig.InvalidField("arguments", "is not JSON")
	}
	return c.err
}
