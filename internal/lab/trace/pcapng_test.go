// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"
)

// Every packet of a recorded trace has a comment, and that of a device behind rules has their changes.
func TestWritePcapng(t *testing.T) {
	text, err := os.ReadFile("testdata/denied.json")
	if err != nil {
		t.Fatal(err)
	}
	var r Traced
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := WritePcapng(&file, &r); err != nil {
		t.Fatal(err)
	}
	written := bytes.Clone(file.Bytes())
	in, err := pcapgo.NewNgReader(&file, pcapgo.NgReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var comments []string
	for {
		_, info, options, err := in.ReadPacketDataWithOptions()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(options.Comments) != 1 {
			t.Fatalf("packet %d has the comments %q", len(comments), options.Comments)
		}
		i, err := in.Interface(info.InterfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		comments = append(comments, i.Name+": "+options.Comments[0])
	}
	devices := 0
	for _, s := range r.Walk.Steps {
		if s.Device != "" {
			devices++
		}
	}
	if len(comments) != devices {
		t.Fatalf("%d packets at %d devices", len(comments), devices)
	}
	if first := comments[0]; !strings.HasPrefix(first, "default/c1/eth0: default/c1 device eth0 out: tcp 10.244.1.") {
		t.Errorf("the first one: %s", first)
	}
	last := comments[len(comments)-1]
	for _, want := range []string{"n2/vxlan0: ", "\nn2 forward [0] iptables-nft ip filter: ", "; drops", "has dropped it. The NetworkPolicy default/nothing-in isolates"} {
		if !strings.Contains(last, want) {
			t.Errorf("no %q in the last one: %s", want, last)
		}
	}
	if _, err := exec.LookPath("tshark"); err != nil {
		return
	}
	cmd := exec.Command("tshark", "-r", "-", "-T", "fields", "-e", "frame.comment")
	cmd.Stdin = bytes.NewReader(written)
	out, err := cmd.Output()
	if lines := strings.Count(string(out), "\n"); err != nil || lines != devices || !strings.Contains(string(out), "has dropped it") {
		t.Errorf("tshark: %v: %s", err, out)
	}
}
