// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestALogKeepsItsBeginningAndItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := newLogFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	var all bytes.Buffer
	for n := 0; all.Len() < 5<<20; n++ {
		line := fmt.Sprintf("line %d %s\n", n, strings.Repeat("x", n%200))
		all.WriteString(line)
		if _, err := io.WriteString(l, line); err != nil {
			t.Fatal(err)
		}
		if l.size > keepFirst+2*keepLast {
			t.Fatalf("the file has %d bytes", l.size)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := all.Bytes()
	first, rest, found := bytes.Cut(got, []byte("\n["))
	if !found || !bytes.Equal(first, want[:keepFirst]) {
		t.Error("the beginning is not kept")
	}
	var left int
	if _, err := fmt.Sscanf(string(rest), "%d bytes left out]\n", &left); err != nil {
		t.Fatal(err)
	}
	_, last, _ := bytes.Cut(rest, []byte("]\n"))
	if !bytes.HasSuffix(want, last) || len(last) < keepLast {
		t.Error("the end is not kept")
	}
	if len(first)+left+len(last) != len(want) {
		t.Errorf("%d + %d left out + %d are not the %d bytes written", len(first), left, len(last), len(want))
	}
	tail := l.tail(1000)
	if !bytes.HasSuffix(want, []byte(tail)) || !strings.HasPrefix(tail, "line ") || len(tail) > 1000 || len(tail) < 700 {
		t.Errorf("tail: %q", tail)
	}
}
