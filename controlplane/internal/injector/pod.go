package injector

// pod is what the injector reads of a Kubernetes Pod.
type pod struct {
	Metadata struct {
		Name         string            `json:"name"`
		GenerateName string            `json:"generateName"`
		Labels       map[string]string `json:"labels"`
		Annotations  map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		InitContainers                []named        `json:"initContainers"`
		Containers                    []named        `json:"containers"`
		Volumes                       []volume       `json:"volumes"`
		SecurityContext               map[string]any `json:"securityContext"`
		TerminationGracePeriodSeconds *int64         `json:"terminationGracePeriodSeconds"`
		Hostname                      string         `json:"hostname"`
		Subdomain                     string         `json:"subdomain"`
		HostNetwork                   bool           `json:"hostNetwork"`
	} `json:"spec"`
}

type named struct {
	Name string `json:"name"`
}

type volume struct {
	Name                  string    `json:"name"`
	PersistentVolumeClaim *struct{} `json:"persistentVolumeClaim"`
}

// title is the pod's name; one that a controller makes has none yet, only its beginning.
func (p *pod) title() string {
	if p.Metadata.Name != "" {
		return p.Metadata.Name
	}
	return p.Metadata.GenerateName + "…"
}

// volume is the pod's volume of that name, or nil.
func (p *pod) volume(name string) *volume {
	for i := range p.Spec.Volumes {
		if p.Spec.Volumes[i].Name == name {
			return &p.Spec.Volumes[i]
		}
	}
	return nil
}

// hasSidecar reports whether the pod has a sidecar, injected or its own.
func (p *pod) hasSidecar() bool {
	for _, containers := range [][]named{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range containers {
			if c.Name == containerName {
				return true
			}
		}
	}
	return false
}
