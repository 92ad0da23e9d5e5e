package program

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

const helpWidth = 80

const settingsHelp = `Each of these flags is also an environment variable (SLUICE_ and its name in
capitals, dashes as underscores) and a key of the file given with --config.
A flag wins over the environment, that over the file, that over the default.
`

// helpOptions sets up --help: kong's own layout, defaults beside the flags, then how to give
// settings, then examples.
func helpOptions(examples string) []kong.Option {
	return []kong.Option{
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, WrapUpperBound: helpWidth}),
		kong.ExplicitGroups([]kong.Group{{Key: "common", Title: "Common flags:"}}),
		kong.ValueFormatter(describe),
		kong.PostBuild(func(k *kong.Kong) error {
			k.Model.HelpFlag.Help = "Show this help and exit."
			k.Model.HelpFlag.Group = &kong.Group{Key: "common", Title: "Common flags:"}
			namePlaceholders(k.Model.Node)
			return nil
		}),
		kong.Help(func(options kong.HelpOptions, parsed *kong.Context) error {
			if err := kong.DefaultHelpPrinter(options, parsed); err != nil {
				return err
			}
			fmt.Fprintf(parsed.Stdout, "\n%s", settingsHelp)
			if examples != "" && parsed.Selected() == nil {
				indented := strings.ReplaceAll(strings.Trim(examples, "\n"), "\n", "\n  ")
				fmt.Fprintf(parsed.Stdout, "\nExamples:\n  %s\n", indented)
			}
			return nil
		}),
	}
}

// describe is the help of one flag or argument with its default, where it has one that is worth
// showing.
func describe(value *kong.Value) string {
	if value.Flag == nil || value.Default == "" || value.IsBool() || kong.HasInterpolatedVar(value.OrigHelp, "default") {
		return value.Help
	}
	return fmt.Sprintf("%s (default: %s).", strings.TrimSuffix(value.Help, "."), value.Default)
}

// namePlaceholders keeps kong from showing defaults in the place of placeholders, where a long one
// breaks the columns.
func namePlaceholders(node *kong.Node) {
	for _, flag := range node.Flags {
		if flag.PlaceHolder == "" {
			flag.PlaceHolder = placeholder(flag)
		}
	}
	for _, child := range node.Children {
		namePlaceholders(child)
	}
}

func placeholder(flag *kong.Flag) string {
	kind := flag.Target.Kind()
	switch {
	case flag.Target.Type() == reflect.TypeFor[time.Duration]():
		return "DURATION"
	case kind >= reflect.Int && kind <= reflect.Float64:
		return "N"
	case flag.IsMap():
		return "NAME=VALUE"
	}
	return strings.ToUpper(flag.Name[strings.LastIndex(flag.Name, "-")+1:])
}
