// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab/cluster/dns"
	"github.com/viplab/viplab/lab/cluster/kubelet"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/sandbox"
)

// DNSImage is the image of a DNS server that listens on port 53. The server has the name of its pod.
const DNSImage = "dns"

// PauseImage is the image of a container without an echo server, so that other servers can use the pod's ports.
const PauseImage = "pause"

// dnsService is the DNS of pods in kube-system, unless their own namespace has a Service of this name.
const dnsNamespace, dnsService = "kube-system", "kube-dns"

// Run runs a command in a pod and waits until it exits. The command sees a kubelet's /etc/resolv.conf and /etc/hosts,
// and otherwise this machine's files.
func (c *Cluster) Run(namespace, name string, cmd *exec.Cmd) error {
	pod, ok := store.Get[*corev1.Pod](c.store, namespace, name)
	host := c.lab.Pod(store.Key{Namespace: namespace, Name: name}.String())
	if !ok || host == nil {
		return fmt.Errorf("pod %s/%s does not run", namespace, name)
	}
	folder, err := sandbox.TempDir("container-")
	if err != nil {
		return err
	}
	files := map[string]string{"/etc/resolv.conf": c.resolvConf(pod), "/etc/hosts": kubelet.HostsFile(pod, host.Addrs())}
	err = host.WithMounts(func() error { return cover(folder, files) }, cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	return errors.Join(err, os.RemoveAll(folder))
}

// cover puts files in the place of others, for the calling thread's mounts alone.
func cover(folder string, files map[string]string) error {
	for path, text := range files {
		instead := filepath.Join(folder, filepath.Base(path))
		if err := os.WriteFile(instead, []byte(text), 0o644); err != nil {
			return err
		}
		if err := standIn(path); err != nil {
			return err
		}
		if err := unix.Mount(instead, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount over %s: %w", path, err)
		}
	}
	return nil
}

// standIn makes an empty file where a symbolic link leads nowhere, as /etc/resolv.conf does without /run/systemd.
func standIn(path string) error {
	to, err := os.Readlink(path)
	if err != nil {
		return nil // no link: what is there, or is not, is for the mount to see
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(path), to)
	}
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, nil, 0o644)
}

// resolvConf returns /etc/resolv.conf as a kubelet writes it, with the cluster's DNS and the pod's dnsConfig.
func (c *Cluster) resolvConf(pod *corev1.Pod) string {
	var servers, searches, options []string
	if pod.Spec.DNSPolicy != corev1.DNSNone {
		servers = c.dnsServers(pod.Namespace)
		searches = []string{pod.Namespace + ".svc." + dns.Domain, "svc." + dns.Domain, dns.Domain}
		options = []string{"ndots:5"}
	}
	if own := pod.Spec.DNSConfig; own != nil {
		servers = append(servers, own.Nameservers...)
		searches = append(searches, own.Searches...)
		for _, o := range own.Options {
			options = slices.DeleteFunc(options, func(has string) bool { return strings.HasPrefix(has, o.Name+":") })
			if value := ptr.Deref(o.Value, ""); value != "" {
				options = append(options, o.Name+":"+value)
			} else {
				options = append(options, o.Name)
			}
		}
	}
	var b strings.Builder
	for _, s := range servers {
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	if len(searches) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(searches, " "))
	}
	if len(options) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(options, " "))
	}
	return b.String()
}

// dnsServers returns the ClusterIPs of the DNS that serves a namespace.
func (c *Cluster) dnsServers(namespace string) []string {
	for _, ns := range []string{namespace, dnsNamespace} {
		s, ok := store.Get[*corev1.Service](c.store, ns, dnsService)
		if ok && s.Spec.ClusterIP != corev1.ClusterIPNone {
			return s.Spec.ClusterIPs
		}
	}
	return nil
}
