"""foretrace's episodes for TRL's `GRPOTrainer`: a prompt dataset, a reward, and rollouts (see docs/trl.md)."""

from foretrace.envs.trl.functions import (
    Generate as Generate,
)
from foretrace.envs.trl.functions import (
    Generated as Generated,
)
from foretrace.envs.trl.functions import (
    RewardFunc as RewardFunc,
)
from foretrace.envs.trl.functions import (
    RolloutFunc as RolloutFunc,
)
from foretrace.envs.trl.functions import (
    TrainedModel as TrainedModel,
)
from foretrace.envs.trl.functions import (
    demo_model as demo_model,
)
from foretrace.envs.trl.functions import (
    prompt_dataset as prompt_dataset,
)
from foretrace.envs.trl.functions import (
    reward_fn as reward_fn,
)
from foretrace.envs.trl.functions import (
    reward_from_rollout as reward_from_rollout,
)
from foretrace.envs.trl.functions import (
    rollout_func as rollout_func,
)
from foretrace.envs.trl.functions import (
    server_generate as server_generate,
)
