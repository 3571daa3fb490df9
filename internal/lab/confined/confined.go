// SPDX-License-Identifier: Apache-2.0

// Package confined tells what kind of container a process runs in, since what to do about a refusal depends on it.
package confined

import "os"

// Place is what a process runs in.
type Place string

// The places. Machine is the zero value: no sign of a container. All others are containers.
const (
	Machine   Place = ""
	Container Place = "a container"
	Pod       Place = "a pod of Kubernetes"
	KindNode  Place = "a node of kind"
	GitHub    Place = "a container of GitHub Actions"
	GitLab    Place = "a container of GitLab CI"
)

// Here returns the place of this process.
func Here() Place {
	return find(os.Getenv, func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	})
}

// find looks for what container engines leave: Docker's and Podman's files, the variable of systemd's interface for
// containers, Kubernetes' variables of its own Service, and the version file of kind's images of nodes.
func find(env func(string) string, exists func(path string) bool) Place {
	inPod := env("KUBERNETES_SERVICE_HOST") != ""
	if !inPod && !exists("/.dockerenv") && !exists("/run/.containerenv") && env("container") == "" {
		return Machine
	}
	switch {
	case exists("/kind/version"):
		return KindNode
	case env("GITHUB_ACTIONS") != "":
		return GitHub
	case env("GITLAB_CI") != "":
		return GitLab
	case inPod:
		return Pod
	}
	return Container
}

// Privileges returns how a process here gets the privileges that a sandbox needs.
func (p Place) Privileges() string {
	switch p {
	case Container:
		return "docker run --privileged (Podman: the same flag)"
	case Pod:
		return "securityContext: {privileged: true} in the container of the pod"
	case KindNode:
		return "run as root in the node, docker exec NODE viplab ...; kind's nodes are privileged containers"
	case GitHub:
		return "options: --privileged below \"container\" of the job, or run the job on the runner itself, with sudo"
	case GitLab:
		return "privileged = true below [runners.docker] in the runner's config.toml"
	}
	return "run with sudo; in a container: docker run --privileged"
}
