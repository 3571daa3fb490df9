// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/lab/confined"
	"github.com/viplab/viplab/internal/lab/kernel"
)

func sample() diagnosis {
	d := diagnosis{Kernel: "6.1.0", Findings: []kernel.Finding{
		{Feature: "sandbox", Status: kernel.Has, For: "everything", Required: true},
		{Feature: "ipip", Status: kernel.Lacks, For: "overlay ipip", Module: "ipip", InVM: true,
			Detail: "operation not supported"},
		{Feature: "dummy", Status: kernel.Lacks, For: "proxier ipvs", Module: "dummy", InVM: true},
		{Feature: "ip_vs", Status: kernel.Lacks, For: "proxier ipvs", Module: "ip_vs", InVM: true},
		{Feature: "iptables-legacy", Status: kernel.Lacks, For: "proxier iptables-legacy", Package: "iptables"},
		{Feature: "user namespaces", Status: kernel.Lacks, For: "working without root", Cure: "use sudo"},
	}}
	d.conclude()
	return d
}

func TestDoctorTable(t *testing.T) {
	var out bytes.Buffer
	if err := sample().writeTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Linux 6.1.0, as root\n",
		"ipip             no      overlay ipip",
		"  user namespaces: use sudo\n  sudo apt-get install iptables\n  sudo modprobe -a dummy ip_vs ipip (or",
		"(scripts/vm): overlay ipip; proxier ipvs.\n",
		"can be judged here: viplab conform.\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestDoctorInAContainer(t *testing.T) {
	d := sample()
	d.Place = confined.Pod
	var out bytes.Buffer
	if err := d.writeTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Linux 6.1.0, as root, in a pod of Kubernetes\n", "\n  apt-get install iptables\n",
		"  on the machine, outside of this container: sudo modprobe -a dummy ip_vs ipip (or",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestDoctorVerdict(t *testing.T) {
	if d := sample(); !d.Ready {
		t.Error("not ready for want of what is not required")
	}
	for _, status := range []kernel.Status{kernel.Lacks, kernel.Unknown} {
		d := sample()
		d.Findings = append(d.Findings, kernel.Finding{Feature: "veth", Status: status, Required: true})
		d.conclude()
		var out bytes.Buffer
		if err := d.writeTable(&out); err != nil {
			t.Fatal(err)
		}
		if d.Ready || !strings.Contains(out.String(), status.String()+"!") ||
			!strings.Contains(out.String(), "cannot be judged here") {
			t.Errorf("veth %v: ready %v\n%s", status, d.Ready, &out)
		}
	}
}

func TestDoctorJSON(t *testing.T) {
	var out bytes.Buffer
	if err := sample().writeJSON(&out); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Ready    bool
		InVM     []string `json:"in_vm"`
		Findings []struct{ Feature, Status, For string }
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if !got.Ready || strings.Join(got.InVM, "|") != "overlay ipip|proxier ipvs" || got.Findings[1].Status != "no" {
		t.Errorf("got %+v", got)
	}
}
