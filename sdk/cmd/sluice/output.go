package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

// format is the value of --output: table, wide, json or yaml.
type format string

const (
	formatWide format = "wide"
	formatJSON format = "json"
	formatYAML format = "yaml"
)

// isDocument reports whether output is for programs.
func (f format) isDocument() bool { return f == formatJSON || f == formatYAML }

// show asks for something, which may be there in part, and shows the answer: with -o json and yaml as it came, else as print
// writes it. With watch it does so again and again.
func show[T any](ctx context.Context, app *program.App, c *client, watch bool, ask func(context.Context) (T, error),
	print func(*sheet, T) error) error {
	once := printing(ctx, app, c, ask, print)
	if watch {
		return repeat(ctx, app, c.Output, keyboard{}, once)
	}
	return once(app.Stdout)
}

// printing asks for something once, and prints it.
func printing[T any](ctx context.Context, app *program.App, c *client, ask func(context.Context) (T, error),
	print func(*sheet, T) error) func(io.Writer) error {
	return func(out io.Writer) error {
		if c.Output.isDocument() {
			_, err := ask(admin.WithAnswers(ctx, func(answer []byte) error { return c.Output.writeText(out, answer) }))
			return err
		}
		answer, err := ask(ctx)
		if err != nil && !errors.Is(err, errPart) {
			return err
		}
		return cmp.Or(print(newSheet(out, app.Stdout, c.Output), answer), err)
	}
}

// printDone says what was done: as a document, or for people in a sentence.
func printDone(app *program.App, c *client, document any, sentence string, args ...any) error {
	if c.Output.isDocument() {
		return c.Output.write(app.Stdout, document)
	}
	_, err := fmt.Fprintf(app.Stdout, sentence+"\n", args...)
	return err
}

// write writes v as a document.
func (f format) write(w io.Writer, v any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	return f.writeText(w, text.Bytes())
}

// writeText writes a JSON text as a line, or as a YAML document.
func (f format) writeText(w io.Writer, text []byte) error {
	if f != formatYAML {
		_, err := fmt.Fprintf(w, "%s\n", bytes.TrimSpace(text))
		return err
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	document, err := yamlOf(in)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	out.WriteString("---\n")
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(document); err != nil {
		return err
	}
	_, err = out.WriteTo(w)
	return err
}

// yamlOf makes YAML of the next JSON value: members keep their order, and numbers their digits.
func yamlOf(in *json.Decoder) (*yaml.Node, error) {
	token, err := in.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Delim:
		node := &yaml.Node{Kind: yaml.SequenceNode}
		if v == '{' {
			node.Kind = yaml.MappingNode
		}
		for in.More() { // the names of members are strings
			child, err := yamlOf(in)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, child)
		}
		_, err := in.Token()
		return node, err
	case string:
		node := new(yaml.Node)
		return node, node.Encode(v) // with quotation marks where readers of older YAML take it for something else
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: "null"}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(token)}, nil
}
