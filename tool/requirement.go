package tool

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// MaxPackages is the maximum number of packages of a setup, a tool or a step.
const MaxPackages = 100

var (
	pipForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}(\[[A-Za-z0-9,._-]{1,128}\])? ?((===|==|<=|>=|!=|~=|<|>) ?[A-Za-z0-9.*+!_-]{1,64}(, ?(===|==|<=|>=|!=|~=|<|>) ?[A-Za-z0-9.*+!_-]{1,64}){0,7})?$`)
	npmForm = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]{0,127}/)?[a-z0-9][a-z0-9._-]{0,127}(@[A-Za-z0-9.^~*+_-]{1,64})?$`)
)

// CheckPython returns an error for the first requirement that must not be passed to
// pip. Options, paths and URLs are invalid, because tools may use only packages
// from an index.
func CheckPython(field string, list []string) error {
	return checkRequirements(field, list, pipForm, "cowsay, or cowsay==6.1")
}

// CheckNode is like CheckPython, for npm.
func CheckNode(field string, list []string) error {
	return checkRequirements(field, list, npmForm, "lodash, or lodash@4.17.21")
}

func checkRequirements(field string, list []string, form *regexp.Regexp, example string) error {
	if len(list) > MaxPackages {
		return brig.InvalidField(field, "%d packages are too many", len(list)).WithHint("give at most %d", MaxPackages)
	}
	for i, r := range list {
		if !form.MatchString(r) {
			return brig.InvalidField(fmt.Sprintf("%s[%d]", field, i), "%q is no requirement", brig.Clip(r, 80)).WithHint("for example %s", example)
		}
	}
	return nil
}

// InstallError returns the message about packages that cannot be installed. ofTool
// means that they are packages of the tool itself and not of its setup. Letta's
// clients search for this wording.
func InstallError(installer string, packages []string, tool string, ofTool bool, output string) string {
	owner := "sandbox"
	if ofTool {
		owner = "tool"
	}
	return fmt.Sprintf("Failed to install %s %s requirement '%s' for tool '%s' in E2B sandbox. This may be due to package version incompatibility. "+
		"Consider updating the package version or removing the version constraint. Error: %s",
		owner, installer, strings.Join(packages, " "), tool, output)
}

// ParsePipRequirements returns the requirements that a cell passes to pip install, in
// commands that take a whole line of the cell. A line with any other argument
// yields no requirements, because options may refer to files, directories or other
// indexes. A package from another index may differ from the package with the same
// name in the operator's index.
func ParsePipRequirements(cell string) (out []string) {
	cell = strings.ReplaceAll(strings.ReplaceAll(cell, "\r\n", "\n"), "\\\n", " ")
	for _, m := range pipLine.FindAllStringSubmatch(cell, MaxPackages) {
		for _, name := range parseRequirements(m[1]) {
			if len(out) < MaxPackages && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// parseRequirements returns the requirements of one command, given the text after
// "install".
func parseRequirements(text string) (out []string) {
	for _, word := range pipWord.FindAllString(text, 2*MaxPackages) {
		switch word = strings.Trim(word, `"'`); {
		case harmless.MatchString(word):
		case pipForm.MatchString(word):
			out = append(out, word)
		default:
			return nil
		}
	}
	return out
}

var (
	pipLine = regexp.MustCompile(`(?m)^[ \t]*[%!]{0,2}[ \t]*(?:(?:\{sys\.executable\}|[\w/.+-]*python[\w.]*)[ \t]+-m[ \t]+)?pip3?[ \t]+install[ \t](.*)$`)
	pipWord = regexp.MustCompile(`"[^"]*"|'[^']*'|[^ \t"']+`)
	// harmless matches options that do not affect which packages are installed. The
	// driver of the interpreter has the same list.
	harmless = regexp.MustCompile(`^(-[qvU]+|--(quiet|verbose|upgrade|user|no-input|no-cache-dir|prefer-binary|break-system-packages` +
		`|disable-pip-version-check|no-warn-script-location|no-python-version-warning|progress-bar=\w+|root-user-action=\w+))$`)
)

// MergeRequirement adds a pip requirement to a list and replaces an existing one for the same
// package. It ignores invalid requirements, and additional ones when the list is
// full.
func MergeRequirement(list []string, r string) []string {
	if !pipForm.MatchString(r) {
		return list
	}
	list = slices.Clone(list)
	if i := slices.IndexFunc(list, func(old string) bool { return packageName(old) == packageName(r) }); i >= 0 {
		list[i] = r
	} else if len(list) < MaxPackages {
		list = append(list, r)
	}
	return list
}

// packageName returns the normalized name of a requirement's package.
func packageName(requirement string) string {
	if i := strings.IndexAny(requirement, "[ =<>!~"); i >= 0 {
		requirement = requirement[:i]
	}
	return separators.ReplaceAllString(strings.ToLower(requirement), "-")
}

var separators = regexp.MustCompile(`[-_.]+`)
