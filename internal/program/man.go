package program

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
)

// manFlag prints the manual page and ends the program. It is for those who make packages.
type manFlag bool

// BeforeReset is called by kong if the flag is given.
func (manFlag) BeforeReset(parsed *kong.Context, spec Spec) error {
	writeManual(parsed.Stdout, parsed.Model.Node, spec)
	parsed.Exit(StatusOK)
	return nil
}

// writeManual writes the manual page of a program in man(7)'s format. It is the same on every machine.
func writeManual(w io.Writer, program *kong.Node, spec Spec) {
	section := 1
	if spec.Server {
		section = 8
	}
	summary, _, _ := strings.Cut(strings.ReplaceAll(spec.Description, "\n", " "), ". ")
	fmt.Fprintf(w, ".TH %s %d \"\" \"Sluice %s\" \"Sluice\"\n", strings.ToUpper(program.Name), section, roff(Version()))
	fmt.Fprintf(w, ".SH NAME\n%s \\- %s\n", roff(program.Name), roff(strings.TrimSuffix(summary, ".")))
	fmt.Fprintf(w, ".SH SYNOPSIS\n.nf\n%s\n.fi\n", roff(synopsis(program)))
	fmt.Fprintf(w, ".SH DESCRIPTION\n%s\n", paragraphs(spec.Description))
	writeFlags(w, ".SH OPTIONS\n", program.Flags)
	if commands := program.Leaves(true); len(commands) > 0 {
		fmt.Fprint(w, ".SH COMMANDS\n")
		for _, command := range commands {
			fmt.Fprintf(w, ".SS %s\n%s\n", roff(synopsis(command)), roff(command.Help))
			if command.Detail != "" {
				fmt.Fprintf(w, ".PP\n.nf\n%s\n.fi\n", roff(command.Detail))
			}
			for _, arg := range command.Positional {
				fmt.Fprintf(w, ".TP\n\\fI%s\\fR\n%s\n", roff(strings.ToUpper(arg.Name)), roff(describe(arg)))
			}
			for node := command; node != program; node = node.Parent {
				writeFlags(w, "", node.Flags)
			}
		}
	}
	fmt.Fprintf(w, ".SH ENVIRONMENT AND FILES\n%s\n", paragraphs(settingsHelp))
	if spec.Examples != "" {
		fmt.Fprintf(w, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(strings.Trim(spec.Examples, "\n")))
	}
}

// synopsis is the form of a command. Its flags are listed elsewhere.
func synopsis(command *kong.Node) string {
	words := []string{command.FullPath(), "[OPTIONS]"}
	if command.Type == kong.ApplicationNode && len(command.Children) > 0 {
		words = append(words, "COMMAND")
	}
	for _, arg := range command.Positional {
		name := strings.ToUpper(arg.Name)
		if arg.IsCumulative() {
			name += "..."
		}
		if !arg.Required {
			name = "[" + name + "]"
		}
		words = append(words, name)
	}
	return strings.Join(words, " ")
}

func writeFlags(w io.Writer, heading string, flags []*kong.Flag) {
	for _, flag := range flags {
		if flag.Hidden {
			continue
		}
		name := "--" + flag.Name
		if flag.Tag.Negatable != "" {
			name = "--[no-]" + flag.Name
		}
		form := `\fB` + roff(name) + `\fR`
		if flag.Short != 0 {
			form = fmt.Sprintf(`\fB\-%c\fR, %s`, flag.Short, form)
		}
		if !flag.IsBool() {
			form += `=\fI` + roff(flag.PlaceHolder) + `\fR`
		}
		fmt.Fprintf(w, "%s.TP\n%s\n%s\n", heading, form, roff(describeAnywhere(flag)))
		heading = ""
	}
}

// ofMachine says what the defaults are that differ from machine to machine.
var ofMachine = map[string]string{
	"${data_dir}": "sluice/PROGRAM in $XDG_DATA_HOME, or in ~/.local/share",
	"${host}":     "the name of the machine",
}

// describeAnywhere is describe without what is this machine's.
func describeAnywhere(flag *kong.Flag) string {
	value := *flag.Value
	value.Default = cmp.Or(ofMachine[flag.Tag.Get("default")], value.Default)
	return describe(&value)
}

// Lines that begin like these would be requests.
var request = regexp.MustCompile(`(?m)^[.']`)

// roff escapes a text.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "^", `\(ha`, "~", `\(ti`, "`", `\(ga`).Replace(text)
	return request.ReplaceAllString(text, `\&$0`)
}

// paragraphs escapes a text whose paragraphs are apart by an empty line.
func paragraphs(text string) string {
	return strings.ReplaceAll(roff(strings.TrimSpace(text)), "\n\n", "\n.PP\n")
}
