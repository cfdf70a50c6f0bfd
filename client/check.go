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

func (c *checker) checkText(field, s string) {
	if c.err == nil && !utf8.ValidString(s) {
		c.err = brig.InvalidField(field, "is not UTF-8").WithHint("send bytes as a file or as standard input")
	}
}

func (c *checker) checkList(field string, list []string) {
	for i, s := range list {
		c.checkText(fmt.Sprintf("%s[%d]", field, i), s)
	}
}

func (c *checker) checkDict(field string, m map[string]string) {
	for k, v := range m {
		c.checkText(field, k)
		c.checkText(field+"."+k, v)
	}
}

func checkCommand(cmd brig.Command) error {
	var c checker
	c.checkList("command", cmd.Argv)
	c.checkText("shell", cmd.Shell)
	c.checkDict("env", cmd.Env)
	c.checkText("cwd", cmd.Dir)
	c.checkText("user", cmd.User)
	return c.err
}

func checkSpec(s brig.Spec) error {
	var c checker
	c.checkText("name", s.Name)
	c.checkText("template", s.Template)
	c.checkText("default_user", s.User)
	c.checkText("default_cwd", s.Dir)
	c.checkText("image", s.Image)
	c.checkDict("env", s.Env)
	c.checkDict("labels", s.Labels)
	if c.err == nil && s.Command != nil {
		c.err = checkCommand(*s.Command)
	}
	return c.err
}

func checkProgram(p brig.Program) error {
	var c checker
	c.checkText("language", string(p.Language))
	c.checkText("code", p.Code)
	c.checkList("command", p.Command)
	c.checkDict("env", p.Env)
	c.checkDict("labels", p.Labels)
	c.checkText("name", p.SandboxName)
	c.checkText("image", p.Image)
	c.checkText("user", p.User)
	for i, f := range p.Files {
		c.checkText(fmt.Sprintf("files[%d].path", i), f.Path)
	}
	if c.err == nil && p.Arguments != nil && !json.Valid(p.Arguments) {
		c.err = brig.InvalidField("arguments", "is not JSON")
	}
	return c.err
}
