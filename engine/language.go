package engine

import (
	_ "embed"

	"github.com/brig-run/brig"
)

// The drivers run a program of their language. They need nothing but the
// interpreter.
var (
	//go:embed driver/python.py
	pythonDriver []byte
	//go:embed driver/javascript.js
	javascriptDriver []byte
)

// driverDir is where a program, its arguments and its driver are put.
const driverDir = "/tmp/.brig"

// language is how programs in one language are run.
type language struct {
	prefix  string   // of the names of its sandboxes
	argv    []string // runs the program in driverDir
	program string   // the name under which the interpreter is missed
	files   []brig.File
	source  string // the name of the program's file
	values  bool   // takes arguments and returns a value
}

func languageOf(l brig.Language) (language, error) {
	switch l {
	case brig.Python:
		return language{
			prefix: "py-", argv: []string{"python3", driverDir + "/run.py", driverDir}, program: "python3",
			files: []brig.File{{Path: "run.py", Data: pythonDriver}}, source: "main.py", values: true,
		}, nil
	case brig.JavaScript:
		return language{
			prefix: "js-", argv: []string{"node", driverDir + "/run.cjs", driverDir}, program: "node",
			files: []brig.File{{Path: "run.cjs", Data: javascriptDriver}}, source: "main.js", values: true,
		}, nil
	case brig.Bash:
		return language{prefix: "sh-", argv: []string{"bash", driverDir + "/main.sh"}, program: "bash", source: "main.sh"}, nil
	}
	_, err := brig.ParseLanguage(string(l))
	if err == nil {
		err = brig.InvalidField("language", "unknown language %q", clip(string(l)))
	}
	return language{}, err
}
