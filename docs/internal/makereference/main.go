// Command makereference writes the pages of docs/reference: make reference runs it.
package main

import (
	"log"
	"os"
	"path/filepath"

	"github.com/sluice-bus/sluice/docs/internal/reference"
)

func main() {
	for name, text := range reference.Pages() {
		if err := os.WriteFile(filepath.Join("docs", "reference", name), []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
